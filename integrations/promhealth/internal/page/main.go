// Command page writes dashboard.json, a page for Grafana 10 and later.
//
//	go generate .
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
)

func main() {
	out := flag.String("o", "dashboard.json", "the `file` to write")
	flag.Parse()
	page, err := render()
	if err == nil {
		err = os.WriteFile(*out, page, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// dashboard is what Grafana imports.
type dashboard struct {
	Title         string         `json:"title"`
	UID           string         `json:"uid"`
	Description   string         `json:"description"`
	Tags          []string       `json:"tags"`
	SchemaVersion int            `json:"schemaVersion"`
	Timezone      string         `json:"timezone"`
	Refresh       string         `json:"refresh"`
	Time          map[string]any `json:"time"`
	Templating    list           `json:"templating"`
	Annotations   list           `json:"annotations"`
	Panels        []panel        `json:"panels"`
}

// list is how Grafana wraps lists.
type list struct {
	List []object `json:"list"`
}

// object is a part of the page whose keys are Grafana's.
type object = map[string]any

// panel is one picture, or a row of them.
type panel struct {
	ID              int      `json:"id"`
	Title           string   `json:"title"`
	Description     string   `json:"description,omitempty"`
	Type            string   `json:"type"`
	GridPos         place    `json:"gridPos"`
	Datasource      object   `json:"datasource,omitempty"`
	Targets         []target `json:"targets,omitempty"`
	FieldConfig     object   `json:"fieldConfig,omitempty"`
	Options         object   `json:"options,omitempty"`
	Transformations []object `json:"transformations,omitempty"`
}

// place is where a panel is, of 24 columns.
type place struct {
	X int `json:"x"`
	Y int `json:"y"`
	W int `json:"w"`
	H int `json:"h"`
}

// target is a query.
type target struct {
	RefID      string `json:"refId"`
	Datasource object `json:"datasource"`
	Expr       string `json:"expr"`
	Legend     string `json:"legendFormat"`
	Format     string `json:"format,omitempty"`
	Instant    bool   `json:"instant,omitempty"`
	Range      bool   `json:"range"`
	EditorMode string `json:"editorMode"`
}

// render returns the page, with a line for each panel.
func render() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(page()); err != nil {
		return nil, err
	}
	text := bytes.ReplaceAll(b.Bytes(), []byte(`{"id":`), []byte("\n"+`{"id":`))
	for _, key := range []string{"title", "templating", "annotations", "panels"} {
		text = bytes.Replace(text, []byte(`"`+key+`":`), []byte("\n\""+key+`":`), 1)
	}
	return text, nil
}
