package browsertest

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// contrasts returns the texts of the page whose contrast with what is behind them is less
// than 4.5.
const contrasts = `(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = color => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
  const behind = e => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] > 250) return c; } return [255, 255, 255, 255]; };
  const bad = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement, text = walk.currentNode.textContent.trim();
    if (!text || !e.checkVisibility() || e.closest(".sr, .skip, svg")) continue;
    const a = light(rgba(getComputedStyle(e).color)), b = light(behind(e));
    const contrast = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (contrast < 4.5) bad.push(text + ": " + contrast.toFixed(2));
  }
  return JSON.stringify(bad);
})()`

func TestPage_TextsCanBeRead(t *testing.T) {
	root := browser(t)
	for _, scheme := range []string{"light", "dark"} {
		for name, hour := range hours {
			t.Run(scheme+" "+name, func(t *testing.T) {
				if testing.Short() && (name == "well" || name == "many") {
					t.Skip("the others have these colors, too")
				}
				b := show(t, root, record(t, hour), scheme, 1280, 900)
				if name != "well" {
					b.open(hour)
					b.click("#panel form[data-act=isolate] button")
				}
				assert.Equal(t, "[]", b.js(contrasts))
				b.js(`document.styleSheets[0].insertRule("footer { color: color-mix(in srgb, var(--text) 30%, var(--bg)) !important }")`)
				assert.NotEqual(t, "[]", b.js(contrasts), "what cannot be read is found")
			})
		}
	}
}

// Chromium's accessibility tree has a name for everything that can be worked, and a level
// for every heading.
func TestPage_ControlsHaveNames(t *testing.T) {
	root := browser(t)
	for name, hour := range map[string]hour{"tool": sick, "group": down, "tool of a group": downTool} {
		t.Run(name, func(t *testing.T) {
			b := show(t, root, record(t, hour), "light", 1280, 900)
			b.open(hour)
			seen, nameless := b.roles()
			assert.Empty(t, nameless, "roles of what has no name")
			for _, role := range []string{
				"link", "button", "searchbox", "navigation", "complementary", "table", "columnheader", "heading", "image", "main", "banner", "contentinfo",
			} {
				assert.NotZero(t, seen[role], "there is no %s", role)
			}
			assert.Equal(t, "0", b.js(`[...document.querySelectorAll("a, button, input:not([type=hidden])")].filter(e => e.tabIndex < 0 && !e.closest("#strip")).length`),
				"what can be worked can be reached with Tab")
			b.js(`document.querySelector("#pause").textContent = ""`)
			_, nameless = b.roles()
			assert.Equal(t, []string{"button"}, nameless, "what has no name is found")
		})
	}
}

// roles returns how often each role is in the accessibility tree, and the roles of what
// should have a name and has none.
func (b *tab) roles() (seen map[string]int, nameless []string) {
	b.t.Helper()
	tree, err := chromedp.Call(b.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	require.NoError(b.t, err)
	seen = make(map[string]int)
	for _, node := range tree.Nodes {
		if node.Ignored || node.Role == nil {
			continue
		}
		var role, name string
		require.NoError(b.t, json.Unmarshal(node.Role.Value, &role))
		if node.Name != nil {
			_ = json.Unmarshal(node.Name.Value, &name)
		}
		seen[role]++
		switch role {
		case "link", "button", "searchbox", "navigation", "complementary", "image", "heading", "search", "columnheader":
			if name == "" {
				nameless = append(nameless, role)
			}
		}
	}
	return seen, nameless
}

// Tab goes through the page in the order in which it is read, and not through 600 marks.
func TestPage_TabFollowsReadingOrder(t *testing.T) {
	b := show(t, browser(t), record(t, many), "light", 1280, 900)
	var order []string
	for range 30 {
		b.do(chromedp.KeyEvent("\t"))
		order = append(order, b.js(`(e => e.matches(".skip") ? "skip" : e.id && !/^a\d/.test(e.id) ? e.id : e.closest("[id]:not(a):not(tr)").id + (e.closest("thead") ? " head" : ""))(document.activeElement)`))
	}
	var places []string
	for i, place := range order {
		if i == 0 || place != order[i-1] {
			places = append(places, place)
		}
	}
	assert.Equal(t, []string{"skip", "pause", "theme", "banner", "strip", "groups", "q", "nav", "tools head", "tools"}, places)
}

// Nothing sticks out on a phone, and what has to be touched is large enough.
func TestPage_FitsOnPhones(t *testing.T) {
	root := browser(t)
	for _, width := range []int64{320, 390} {
		b := show(t, root, record(t, sick), "light", width, 844)
		const over = `document.documentElement.scrollWidth - innerWidth`
		assert.Equal(t, "0", b.js(over), width)
		assert.Equal(t, "", b.js(`[...document.querySelectorAll("button, #nav a, #q")].filter(e => e.checkVisibility() && e.getBoundingClientRect().height < 34).map(e => e.outerHTML).join()`))
		b.click(`tbody tr:first-child td.tool a`)
		b.eventually(5*time.Second, panel, "Re-route its calls")
		assert.Equal(t, "0", b.js(over), width)
		assert.Equal(t, "0", b.js(`document.querySelector("#panel").scrollWidth - document.querySelector("#panel").clientWidth`), width)
	}
}

// The table is never wider than its frame.
func TestPage_TableFits(t *testing.T) {
	root := browser(t)
	rec := record(t, down)
	for _, width := range []int64{861, 1024, 1181, 1280, 1341, 1440, 1600, 1720, 1920} {
		b := show(t, root, rec, "light", width, 900)
		assert.LessOrEqual(t, b.number(`document.querySelector(".wrap table").getBoundingClientRect().right - document.querySelector(".wrap").getBoundingClientRect().right`), 1.0, width)
	}
}

// number returns the value of an expression as a number.
func (b *tab) number(expression string) float64 {
	b.t.Helper()
	f, err := strconv.ParseFloat(b.js(expression), 64)
	require.NoError(b.t, err)
	return f
}
