package retry

import "sync/atomic"

func (b *Bucket) Missing() *atomic.Int64 { return &b.missing }
