package bench

import (
	"fmt"
	"os"
	"strings"
)

// WriteSection replaces one section of a Markdown file: the text between <!-- name -->
// and <!-- /name -->. It creates a file or section that does not exist.
func WriteSection(path, name, text string) error {
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->\n"
	old := string(data)
	before, rest, found := strings.Cut(old, begin)
	_, after, closed := strings.Cut(rest, end)
	switch {
	case !found:
		if before != "" {
			before += "\n"
		}
	case !closed:
		return fmt.Errorf("%s: no %q after %q", path, end, begin)
	}
	return os.WriteFile(path, []byte(before+begin+text+end+after), 0o644)
}
