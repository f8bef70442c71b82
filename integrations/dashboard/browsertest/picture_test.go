package browsertest

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/dashboard"
	"github.com/toolhealth/toolhealth/integrations/dashboard/internal/scene"
	"github.com/toolhealth/toolhealth/integrations/watch"
)

// hour is what a picture shows.
type hour struct {
	tools func() []*scene.Tool
	group func(tool string) string
	// act is what an operator does in minute 50.
	act func(*toolhealth.Registry)
	// panel is the tool or group whose panel can be opened.
	panel string
}

var (
	well = hour{tools: scene.Well, panel: "tool=github/search"}
	sick = hour{tools: scene.Sick, panel: "tool=github/search", act: func(r *toolhealth.Registry) { r.Isolate("crm/find_contact", "alice") }}
	many = hour{tools: scene.Many, group: scene.Group, panel: "group=maps-03"}
	// In down a server is out of reach, and an operator has taken out another one.
	down = hour{tools: scene.Server, group: scene.Group, panel: "group=github", act: func(r *toolhealth.Registry) { r.IsolateGroup("slack", "alice") }}
	// In downTool the panel is that of one of its tools.
	downTool = hour{tools: scene.Server, group: scene.Group, panel: "tool=github/create_issue", act: down.act}
)

var hours = map[string]hour{"well": well, "sick": sick, "many": many, "down": down}

var version = regexp.MustCompile(`data-v="([^"]*)"`)

// recording is the answers of a page at one moment of virtual time.
type recording struct {
	at      time.Time
	answers map[string]*httptest.ResponseRecorder
}

// record plays an hour and keeps what the page answers at its end. It is night: the hour
// ends at 02:40.
func record(t *testing.T, hour hour) *recording {
	rec := &recording{answers: make(map[string]*httptest.ResponseRecorder)}
	synctest.Test(t, func(*testing.T) {
		time.Sleep(100 * time.Minute)
		config := toolhealth.DefaultConfig()
		config.Group = hour.group
		r, err := toolhealth.NewRegistryWithConfig(config)
		require.NoError(t, err)
		w := watch.New(r, watch.Options{})
		defer w.Close()
		scene.Play(r, w, hour.tools(), func(minute int) {
			if minute == 50 && hour.act != nil {
				hour.act(r)
			}
		})
		h := dashboard.New(r, dashboard.Options{
			Name: "agent-runtime eu-1", Watcher: w, Operator: func(*http.Request) (string, bool) { return "alice", true },
		})
		rec.at = time.Now()
		for _, target := range []string{"", "style.css", "app.js", "icon.svg", "data.json", "panel"} {
			query := ""
			switch target {
			case "panel":
				query = "?" + hour.panel
			case "data.json": // nothing has changed
				query = "?v=" + version.FindStringSubmatch(rec.answers[""].Body.String())[1]
			}
			answer := httptest.NewRecorder()
			h.ServeHTTP(answer, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/x/"+target+query, nil))
			rec.answers[target] = answer
		}
	})
	return rec
}

// ServeHTTP answers as the page did.
func (rec *recording) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := rec.answers[strings.TrimPrefix(r.URL.Path, "/x/")]
	if answer == nil {
		http.NotFound(w, r)
		return
	}
	for key, values := range answer.Header() {
		w.Header()[key] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// show opens a recording in a tab whose clock stands still at its moment.
func show(t *testing.T, root context.Context, rec *recording, scheme string, width, height int64) *tab {
	server := httptest.NewServer(rec)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	b := newTab(t, root)
	b.media("prefers-color-scheme", scheme)
	_, err := chromedp.Call(b.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: fmt.Sprintf("Date.now = () => %d", rec.at.UnixMilli()),
	})
	require.NoError(t, err)
	b.do(chromedp.EmulateViewport(width, height), chromedp.Navigate(server.URL+"/x/"))
	b.eventually(5*time.Second, live, "live")
	return b
}

// open opens the panel of an hour, and waits until it says what to do.
func (b *tab) open(h hour) {
	b.t.Helper()
	key, name, _ := strings.Cut(h.panel, "=")
	b.click(fmt.Sprintf(`a[data-open][href="./?%s=%s"]`, key, strings.ReplaceAll(name, "/", "%2f")))
	b.eventually(5*time.Second, panel, "e-route its calls")
}

// picture returns a PNG of the tab, of all of it or of what is in view, as soon as the
// browser has drawn everything: when two in a row are the same.
func (b *tab) picture(whole bool) (last []byte) {
	b.t.Helper()
	shot := chromedp.CaptureScreenshot()
	if whole {
		shot = chromedp.FullScreenshot(100)
	}
	for range 10 {
		data, err := chromedp.Run(b.ctx, shot)
		require.NoError(b.t, err)
		if bytes.Equal(data, last) {
			return data
		}
		last = data
	}
	return last
}

// alike reports whether two pictures look the same: Chromium smooths edges by a shade more
// or less.
func alike(t *testing.T, a, b []byte) bool {
	t.Helper()
	var images [2]image.Image
	for i, data := range [][]byte{a, b} {
		var err error
		images[i], err = png.Decode(bytes.NewReader(data))
		require.NoError(t, err)
	}
	if images[0].Bounds() != images[1].Bounds() {
		return false
	}
	for y := range images[0].Bounds().Dy() {
		for x := range images[0].Bounds().Dx() {
			r1, g1, b1, _ := images[0].At(x, y).RGBA()
			r2, g2, b2, _ := images[1].At(x, y).RGBA()
			for _, pair := range [][2]uint32{{r1, r2}, {g1, g2}, {b1, b2}} {
				if max(pair[0], pair[1])-min(pair[0], pair[1]) > 8<<8 {
					return false
				}
			}
		}
	}
	return true
}

// The same hour gives the same picture each time. With SHOTS=folder the pictures are
// written there.
func TestPicture_SameHourIsSamePicture(t *testing.T) {
	root := browser(t)
	recordings := make(map[string][2]*recording) // by panel: each hour is played twice
	for _, c := range []struct {
		name          string
		hour          hour
		scheme        string
		width, height int64
		panel, whole  bool
	}{
		{name: "well-light", hour: well, scheme: "light", width: 1280, height: 900},
		{name: "sick-light", hour: sick, scheme: "light", width: 1280, height: 960},
		{name: "sick-dark", hour: sick, scheme: "dark", width: 1280, height: 960},
		{name: "sick-panel-dark", hour: sick, scheme: "dark", width: 1440, height: 1000, panel: true},
		{name: "down-light", hour: down, scheme: "light", width: 1280, height: 960},
		{name: "down-panel-light", hour: down, scheme: "light", width: 1440, height: 1000, panel: true},
		{name: "down-tool-dark", hour: downTool, scheme: "dark", width: 1440, height: 1000, panel: true},
		{name: "down-phone", hour: down, scheme: "dark", width: 390, height: 844, whole: true},
		{name: "wide-dark", hour: down, scheme: "dark", width: 1920, height: 1000},
		{name: "many-light", hour: many, scheme: "light", width: 1440, height: 900},
		{name: "sick-phone", hour: sick, scheme: "light", width: 390, height: 844, whole: true},
		{name: "panel-phone", hour: sick, scheme: "dark", width: 390, height: 844, panel: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() && c.name != "sick-light" && c.name != "down-phone" {
				t.Skip("one hour of each kind is enough for a short run")
			}
			key := fmt.Sprint(c.hour.panel, c.hour.act == nil)
			if recordings[key][0] == nil {
				recordings[key] = [2]*recording{record(t, c.hour), record(t, c.hour)}
			}
			var pictures [2][]byte
			for i := range pictures {
				b := show(t, root, recordings[key][i], c.scheme, c.width, c.height)
				if c.panel {
					b.open(c.hour)
				}
				b.silent()
				pictures[i] = b.picture(c.whole)
			}
			same := assert.True(t, alike(t, pictures[0], pictures[1]), "two pictures of the same hour differ")
			if folder := os.Getenv("SHOTS"); folder != "" {
				require.NoError(t, os.WriteFile(filepath.Join(folder, c.name+".png"), pictures[0], 0o600))
				if !same {
					require.NoError(t, os.WriteFile(filepath.Join(folder, c.name+"-again.png"), pictures[1], 0o600))
				}
			}
		})
	}
}
