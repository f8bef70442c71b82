package recipes_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/toolhealth/toolhealth"
)

// decodeArguments reads what the model wrote. The model is told what is wrong with it, and
// the tool, which was never asked, keeps its streak of failures.
func decodeArguments(text string, into any) error {
	err := json.Unmarshal([]byte(text), into)
	if err != nil {
		err = fmt.Errorf("bad arguments: %w", err)
	}
	return toolhealth.BadRequest(err)
}

// decodeAnswer reads what the tool wrote. If that is no good, the tool has failed.
func decodeAnswer(text string, into any) error {
	return toolhealth.WithVerdict(json.Unmarshal([]byte(text), into), toolhealth.Verdict{
		Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindContract,
	})
}

// The same error of encoding/json is the model's fault in one place and the tool's in the
// other. Unmarked it would be neutral.
func Example_arguments() {
	guard := newGuard(toolhealth.Settings{})
	answer := `<html>maintenance</html>`
	weather := toolhealth.Wrap(guard, "weather", func(_ context.Context, arguments string) (string, error) {
		var in struct{ City string }
		if err := decodeArguments(arguments, &in); err != nil {
			return "", err
		}
		var out struct{ Degrees int } // of the tool
		err := decodeAnswer(answer, &out)
		return fmt.Sprint(in.City, " has ", out.Degrees, " degrees"), err
	})
	for _, arguments := range []string{`{"City": 7}`, `{"City": "Lisbon"}`, `{"City": "Porto"}`, `{}}`, `{"City": "Faro"}`, `{"City": "Beja"}`} {
		fmt.Println(forModel(weather.Call(context.Background(), arguments)))
	}
	health, _ := guard.Registry().Health("weather")
	fmt.Println(health.Rejected, health.ByKind)
	// Output:
	// bad arguments: json: cannot unmarshal number into Go struct field .City of type string
	// tool failed: the answer was not in the agreed format
	// tool failed: the answer was not in the agreed format
	// bad arguments: invalid character '}' after top-level value
	// tool failed: the answer was not in the agreed format
	// tool temporarily unavailable: circuit breaker open; retry after 30s
	// 2 map[contract:3]
}
