module github.com/toolhealth/toolhealth/internal/bench

go 1.26.0

require (
	github.com/afex/hystrix-go v0.0.0-20180502004556-fa1af6a1f4f5
	github.com/bytedance/gopkg v0.1.4
	github.com/eapache/go-resiliency v1.7.0
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/felixgeelhaar/fortify v1.1.2
	github.com/go-kratos/aegis v0.2.0
	github.com/rubyist/circuitbreaker v2.2.1+incompatible
	github.com/sony/gobreaker/v2 v2.4.0
	github.com/streadway/handy v0.0.0-20200128134331-0f66f006fb2e
	github.com/toolhealth/toolhealth v0.0.0-00010101000000-000000000000
	github.com/zeromicro/go-zero v1.10.3
	golang.org/x/perf v0.0.0-20260908200009-22c9c6c9d4da
	golang.org/x/sys v0.48.0
)

require (
	github.com/aclements/go-moremath v0.0.0-20210112150236-f10218a38794 // indirect
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/cenk/backoff v2.2.1+incompatible // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/facebookgo/clock v0.0.0-20150410010913-600d898af40a // indirect
	github.com/fatih/color v1.18.0 // indirect
	github.com/influxdata/tdigest v0.0.1 // indirect
	github.com/mattn/go-colorable v0.1.13 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	github.com/peterbourgon/g2s v0.0.0-20170223122336-d4e7ad98afea // indirect
	github.com/smartystreets/goconvey v1.8.1 // indirect
	github.com/spaolacci/murmur3 v1.1.0 // indirect
	go.opentelemetry.io/otel v1.40.0 // indirect
	go.opentelemetry.io/otel/trace v1.40.0 // indirect
	go.uber.org/automaxprocs v1.6.0 // indirect
)

replace github.com/toolhealth/toolhealth => ../..

tool golang.org/x/perf/cmd/benchstat
