module github.com/toolhealth/toolhealth/internal/proof/linear

go 1.26.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/stretchr/testify v1.12.1
	github.com/toolhealth/toolhealth v0.0.0-00010101000000-000000000000
	go.uber.org/goleak v1.3.0
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect

replace github.com/toolhealth/toolhealth => ../../..
