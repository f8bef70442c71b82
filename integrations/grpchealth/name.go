package grpchealth

import (
	"strings"

	"github.com/toolhealth/toolhealth"
)

// maxName bounds the length of a default name, in bytes: a server with an
// UnknownServiceHandler is told methods by its clients.
const maxName = 256

// nameOf is the default name of a method: without the leading slash, and cut.
func nameOf(method string) string {
	name := strings.TrimPrefix(method, "/")
	if len(name) > maxName {
		return strings.Clone(name[:maxName]) // the registry keeps it, and would keep the rest
	}
	return name
}

// namer returns name, or the default.
func namer(name func(method string) string) func(method string) string {
	if name == nil {
		return nameOf
	}
	return name
}

// plain returns a Gate like g, without the Router, and with Rules if it has no Classify.
func plain(g *toolhealth.Gate) *toolhealth.Gate {
	if g == nil {
		return nil
	}
	p := &toolhealth.Gate{Registry: g.Registry, Classify: g.Classify, DeadlineFloor: g.DeadlineFloor}
	if p.Classify == nil {
		p.Classify = judge
	}
	return p
}
