package promhealth

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/toolhealth/toolhealth"
)

// classic are the bounds of the classic buckets, as exponents of 2^(1/4): every one is the
// bound of a native bucket, too, so that no count has to be guessed. They are the doublings
// from 1/1024 s to 128 s, and the halves between 1/64 s and 16 s.
var classic = func() (bounds []int) {
	for e := -40; e <= 28; e += 4 {
		bounds = append(bounds, e)
		if e >= -24 && e < 16 {
			bounds = append(bounds, e+2)
		}
	}
	return bounds
}()

// bounds are those of classic in seconds. Metrics point to them.
var bounds = func() (seconds []float64) {
	for _, e := range classic {
		seconds = append(seconds, math.Exp2(float64(e)/4))
	}
	return seconds
}()

// nativeSchema is that of the buckets of a registry, and zeroThreshold where they begin.
const (
	nativeSchema  int32   = 2
	zeroThreshold float64 = 1.0 / (1 << 17)
)

// histogram has the buckets twice: native ones, as the registry counts them, and classic
// ones for a Prometheus that takes no others.
type histogram struct {
	desc   *desc
	labels []*dto.LabelPair
	data   dto.Histogram
}

// newHistogram returns the metric of a histogram that was empty when it was created.
func newHistogram(d *desc, labels []*dto.LabelPair, h *toolhealth.Histogram, created *timestamppb.Timestamp) *histogram {
	m := &histogram{desc: d, labels: labels}
	m.data.CreatedTimestamp = created
	m.data.SampleCount = new(h.Count)
	m.data.SampleSum = new(h.Sum.Seconds())
	m.data.Schema = new(nativeSchema)
	m.data.ZeroThreshold = new(zeroThreshold)
	m.data.ZeroCount = new(h.ZeroCount)
	m.native(h)
	m.classic(h)
	return m
}

// native fills in the buckets that are not empty: a span for each row of them, and how
// much each has more than the one before it.
func (m *histogram) native(h *toolhealth.Histogram) {
	var span *dto.BucketSpan
	end, last := 0, int64(0)
	for i, n := range h.Counts {
		if n == 0 {
			continue
		}
		bucket := h.Offset + i + 1 // the native bucket k ends at 2^(k/4)
		if span == nil || bucket > end {
			span = &dto.BucketSpan{Offset: new(int32(bucket - end)), Length: new(uint32(0))}
			m.data.PositiveSpan = append(m.data.PositiveSpan, span)
		}
		*span.Length++
		m.data.PositiveDelta = append(m.data.PositiveDelta, int64(n)-last)
		last, end = int64(n), bucket+1
	}
}

// classic fills in how many durations were no longer than each bound. The one without
// bound is SampleCount.
func (m *histogram) classic(h *toolhealth.Histogram) {
	buckets, counts := make([]dto.Bucket, len(classic)), make([]uint64, len(classic))
	m.data.Bucket = make([]*dto.Bucket, len(classic))
	sum, next := h.ZeroCount, 0
	for i, bound := range classic {
		for ; next < len(h.Counts) && h.Offset+next+1 <= bound; next++ {
			sum += h.Counts[next]
		}
		counts[i] = sum
		b := &buckets[i]
		b.UpperBound, b.CumulativeCount = &bounds[i], &counts[i]
		m.data.Bucket[i] = b
	}
}

// Desc returns the description.
func (m *histogram) Desc() *prometheus.Desc { return m.desc.Desc }

// Write fills in the metric.
func (m *histogram) Write(out *dto.Metric) error {
	out.Histogram, out.Label = &m.data, m.labels
	return nil
}
