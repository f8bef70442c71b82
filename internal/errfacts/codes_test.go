package errfacts

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFact_MeaningOfEachClass(t *testing.T) {
	t.Parallel()
	for want, facts := range map[Meaning][]Fact{
		Unknown: {{}, {Class: HTTP}, {Class: HTTP, Code: 99}, {Class: HTTP, Code: 200}, {Class: HTTP, Code: 600}, {Class: HTTP, Code: -1},
			{Class: GRPC}, {Class: SQLState, Name: "0A000"}, {Class: MySQL, Code: 9999},
			{Class: Exit, Code: -1}, {Class: Exit}, {Class: Exit, Code: 128}, {Class: Exit, Code: 137}},
		Failed: {{Class: GRPC, Code: 2}, {Class: GRPC, Code: 13}, {Class: GRPC, Code: 15}, {Class: JSONRPC, Code: -32050},
			{Class: SQLState, Name: "25006"}, {Class: SQLState, Name: "XX000"}, {Class: SQLState, Name: "58030"}, {Class: MySQL, Code: 1290}, {Class: Redis, Name: "OOM"}},
		Unavailable: {{Class: HTTP, Code: 500}, {Class: HTTP, Code: 503}, {Class: HTTP, Code: 599}, {Class: GRPC, Code: 14}, {Class: JSONRPC, Code: -32603},
			{Class: SQLState, Name: "53300"}, {Class: MySQL, Code: 1040}, {Class: Redis, Name: "LOADING"}, {Class: Redis, Name: "MAXCLIENTS"}},
		Limited:           {{Class: HTTP, Code: 429}, {Class: GRPC, Code: 8}, {Class: JSONRPC, Code: -32029}, {Class: JSONRPC, Code: 429}, {Class: Coded, Code: int(Limited)}},
		QuotaExhausted:    {{Class: HTTP, Code: 402}, {Class: Coded, Code: int(QuotaExhausted)}},
		TimedOut:          {{Class: HTTP, Code: 408}, {Class: GRPC, Code: 4}, {Class: JSONRPC, Code: -32001}, {Class: Exit, Code: 124}, {Class: Timeout}},
		StatementTimedOut: {{Class: SQLState, Name: "57014"}},
		DialTimedOut:      {{Class: Dial, Code: 1}, {Class: NameFailed, Code: 1}},
		Cut:               {{Class: JSONRPC, Code: -32000}, {Class: JSONRPC, Code: 32600}, {Class: SQLState, Name: "08006"}, {Class: SQLState, Name: "57P01"}, {Class: Stream}, {Class: Broken}},
		CutHandshake:      {{Class: TLSAlert}},
		Unreachable:       {{Class: Dial}, {Class: NameFailed}, {Class: RefusedStream}, {Class: BadConn}},
		Misaddressed:      {{Class: NameNotFound}, {Class: TLS}, {Class: BadRequestURL}},
		Unagreed:          {{Class: HTTP, Code: 300}, {Class: HTTP, Code: 399}, {Class: JSONRPC, Code: -32021}, {Class: Nonsense}},
		NoProgram:         {{Class: NotExecutable}},
		NoCommand:         {{Class: Exit, Code: 126}, {Class: Exit, Code: 127}},
		CanceledInside:    {{Class: GRPC, Code: 1}, {Class: JSONRPC, Code: -32800}, {Class: Canceled}},
		NotTakenUp:        {{Class: HTTP, Code: 425}},
		Invalid: {{Class: HTTP, Code: 400}, {Class: HTTP, Code: 499}, {Class: HTTP, Code: 501}, {Class: HTTP, Code: 505}, {Class: GRPC, Code: 3}, {Class: JSONRPC, Code: -32602},
			{Class: SQLState, Name: "22012"}, {Class: SQLState, Name: "42601"}, {Class: MySQL, Code: 1064}, {Class: Redis, Name: "WRONGTYPE"}, {Class: Exit, Code: 1}, {Class: Exit, Code: 125}},
		NotFound: {{Class: HTTP, Code: 404}, {Class: GRPC, Code: 5}, {Class: MySQL, Code: 1146}, {Class: NoRows}, {Class: NotExist}},
		Denied: {{Class: HTTP, Code: 401}, {Class: HTTP, Code: 403}, {Class: HTTP, Code: 407}, {Class: GRPC, Code: 7}, {Class: GRPC, Code: 16},
			{Class: SQLState, Name: "28P01"}, {Class: MySQL, Code: 1045}, {Class: Redis, Name: "NOAUTH"}, {Class: Permission}},
		Gone:           {{Class: HTTP, Code: 410}, {Class: JSONRPC, Code: -32601}, {Class: GRPC, Code: 12}},
		Unchanged:      {{Class: HTTP, Code: 304}},
		Conflict:       {{Class: HTTP, Code: 409}, {Class: GRPC, Code: 6}, {Class: MySQL, Code: 1062}, {Class: Exist}},
		Collided:       {{Class: GRPC, Code: 10}, {Class: SQLState, Name: "40P01"}, {Class: MySQL, Code: 1213}},
		Ambiguous:      {{Class: JSON}},
		OutOfResources: {{Class: HostExhausted}},
		Pending:        {{Class: JSONRPC, Code: -32042}},
		Refused:        {{Class: OpenBreaker}},
	} {
		for _, fact := range facts {
			assert.Equal(t, want, fact.Meaning(), "%+v", fact)
		}
	}
}
