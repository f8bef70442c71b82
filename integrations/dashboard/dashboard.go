package dashboard

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/watch"
)

//go:embed assets
var assets embed.FS

// pages are the templates.
var pages = template.Must(template.New("").Funcs(template.FuncMap{"asset": assetLink}).ParseFS(assets, "assets/page.html"))

// Options of a page. The zero Options show the tools to every client and let none act.
type Options struct {
	// Name says whose tools these are: the service, the instance.
	Name string
	// Watcher remembers the last minutes of the registry. If it is nil, the page makes
	// one that samples only while a page is open, and keeps its hook for good: then
	// nothing is known of the minutes before the page was opened but what breakers did.
	Watcher *watch.Watcher
	// Operator says whether the sender of the request may isolate and reset tools and
	// what to call them in the history. If it is nil, none may.
	Operator func(*http.Request) (who string, ok bool)
	// Window is the time that figures cover; 0 or less: 5m. More than 10m are not known.
	Window time.Duration
}

// handler is the page of one registry.
type handler struct {
	registry *toolhealth.Registry
	watcher  *watch.Watcher
	options  Options
	foreign  *http.CrossOriginProtection
	run      string // differs between two runs of a program, whose versions both begin at 1

	// mu is held to build what a request asks for, not to send it. No code of the user
	// runs under it.
	mu      sync.Mutex
	current *state
	ids     map[string]int // of rows, by tool
	lastID  int
	drawn   map[string]*drawing // rows, by tool
}

// New returns the page of a registry.
func New(r *toolhealth.Registry, o Options) http.Handler {
	if o.Window <= 0 {
		o.Window = 5 * time.Minute
	}
	o.Window = min(o.Window, 10*time.Minute)
	o.Name = cmp.Or(o.Name, "Tools")
	h := &handler{
		registry: r, watcher: o.Watcher, options: o, foreign: http.NewCrossOriginProtection(),
		run: strconv.FormatInt(time.Now().UnixNano(), 36), ids: make(map[string]int), drawn: make(map[string]*drawing),
	}
	if h.watcher == nil {
		h.watcher = watch.New(r, watch.Options{})
	}
	return h
}

// policy allows what this page does and nothing else.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP serves the page and what belongs to it. Only the last part of the path counts.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", policy)
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cache-Control", "no-store")
	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	acts := name == "isolate" || name == "reset"
	switch {
	case acts && r.Method == http.MethodPost:
		h.operate(w, r, name)
	case acts:
		head.Set("Allow", "POST")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		head.Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	default:
		h.show(w, r, name)
	}
}

// show answers a GET.
func (h *handler) show(w http.ResponseWriter, r *http.Request, name string) {
	switch name {
	case "":
		h.page(w, r)
	case "panel":
		h.panel(w, r)
	case "data.json":
		h.data(w, r)
	case "summary.json":
		text, err := json.Marshal(h.registry.HealthSummary())
		if err != nil {
			http.Error(w, "no summary", http.StatusInternalServerError)
			return
		}
		send(w, r, "application/json", text)
	case "style.css":
		asset(w, r, name, "text/css; charset=utf-8")
	case "app.js":
		asset(w, r, name, "text/javascript; charset=utf-8")
	case "icon.svg":
		color := map[string]string{"bad": "#d1333a", "warn": "#d99a1c", "held": "#6a3fb5"}[r.URL.Query().Get("s")]
		w.Header().Set("Cache-Control", "private, max-age=86400")
		send(w, r, "image/svg+xml", fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">`+
			`<circle cx="8" cy="8" r="7" fill="%s"/></svg>`, cmp.Or(color, "#1f9d5c")))
	default:
		http.NotFound(w, r)
	}
}

// maxForm is how much is read of the form of an operator, in bytes.
const maxForm int64 = 1 << 16

// operate does what an operator asks for. It needs no token: browsers say where a
// request comes from.
func (h *handler) operate(w http.ResponseWriter, r *http.Request, act string) {
	if err := h.foreign.Check(r); err != nil {
		http.Error(w, "not from another site", http.StatusForbidden)
		return
	}
	who, ok := h.operator(r)
	if !ok {
		http.Error(w, "you may look, not act", http.StatusForbidden)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	key, done := "tool", false
	if r.PostFormValue("group") != "" {
		key = "group"
	}
	name := r.PostFormValue(key)
	switch known := h.knows(key, name); { // to isolate a misspelled name would be no help
	case !known:
	case key == "tool" && act == "isolate":
		done = h.registry.Isolate(name, who)
	case key == "tool":
		done = h.registry.Reset(name, who)
	case act == "isolate":
		done = h.registry.IsolateGroup(name, who)
	default:
		done = h.registry.ResetGroup(name, who)
	}
	if !done {
		http.Error(w, "no such "+key, http.StatusNotFound)
		return
	}
	w.Header().Set("Location", "./?"+url.Values{key: {name}}.Encode()) // http.Redirect would make it absolute
	w.WriteHeader(http.StatusSeeOther)
}

// knows reports whether there is such a tool or group.
func (h *handler) knows(key, name string) bool {
	if key == "tool" {
		_, ok := h.registry.Health(name)
		return ok
	}
	return slices.ContainsFunc(h.registry.HealthSummary().Groups, func(g toolhealth.GroupHealth) bool { return g.Group == name })
}

func (h *handler) operator(r *http.Request) (who string, ok bool) {
	if h.options.Operator == nil {
		return "", false
	}
	return h.options.Operator(r)
}

// assetLink returns the link to an asset. It differs between two versions of the asset,
// so that browsers can keep what they have.
func assetLink(name string) (string, error) {
	text, err := assets.ReadFile("assets/" + name)
	sum := sha256.Sum256(text)
	return name + "?v=" + hex.EncodeToString(sum[:6]), err
}

func asset(w http.ResponseWriter, r *http.Request, name, kind string) {
	text, err := assets.ReadFile("assets/" + name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	send(w, r, kind, text)
}

// send writes an answer, compressed if it is worth it and the client takes it.
func send(w http.ResponseWriter, r *http.Request, kind string, text []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Add("Vary", "Accept-Encoding")
	if len(text) > 1000 && takesGzip(r.Header.Get("Accept-Encoding")) {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(text) // a Buffer takes everything
		_ = z.Close()
		w.Header().Set("Content-Encoding", "gzip")
		text = b.Bytes()
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = w.Write(text)
}

// takesGzip reports whether a client that sent this Accept-Encoding wants gzip.
func takesGzip(accepted string) bool {
	for coding := range strings.SplitSeq(accepted, ",") {
		name, params, _ := strings.Cut(coding, ";")
		if strings.TrimSpace(name) == "gzip" {
			q, found := strings.CutPrefix(strings.TrimSpace(params), "q=")
			weight, err := strconv.ParseFloat(q, 64)
			return !found || err == nil && weight > 0
		}
	}
	return false
}

// render returns what a template makes of data.
func render(name string, data any) string {
	var b strings.Builder
	if err := pages.ExecuteTemplate(&b, name, data); err != nil {
		return template.HTMLEscapeString(err.Error())
	}
	return b.String()
}
