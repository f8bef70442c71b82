// Without this script the page is complete and reloads itself. The script asks for what
// has changed, puts the server's own HTML in its place, and counts down.
"use strict";
(() => {
  const $ = (selector, e = document) => e.querySelector(selector);
  const $$ = (selector, e = document) => [...e.querySelectorAll(selector)];
  const body = document.body, panel = $("#panel"), find = $("#q"), every = +body.dataset.every || 2000;
  let version = body.dataset.v, order = "", skew = +body.dataset.at - Date.now(), heard = Date.now();
  let paused = false, timer = 0, asked = 0, head = $("#banner h2").textContent;

  // A tool or group goes by the query of the links to it, since its name may be no text.
  const query = search => "?" + (/(?:^|[?&])((?:tool|group)=[^&]*)/.exec(search) || ["", ""])[1];
  const same = (a, b) => a !== "" && ["tool", "group"].every(key => new URLSearchParams(a).get(key) === new URLSearchParams(b).get(key));
  let open = panel.hidden ? "" : query(location.search); // what is in the panel

  function put(e, html) { if (e && e.innerHTML !== html) e.innerHTML = html; }
  function say(text) { $("#said").textContent = text; }

  // Times, in words as the server writes them.
  const coarse = s => s < 90 ? Math.ceil(s) + " s" : s < 5400 ? Math.round(s / 60) + " min" : s < 172800 ? Math.round(s / 3600) + " h" : Math.round(s / 86400) + " days";
  const exact = s => s < 60 ? Math.ceil(s) + " s" : s < 3600 ? Math.floor(s / 60) + " min " + Math.floor(s % 60) + " s" : Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " min";
  const ago = s => s < 5 ? "just now" : coarse(Math.floor(s)) + " ago";
  const text = (e, words) => { if (e && e.textContent !== words) e.textContent = words; };

  function clocks() {
    const now = Date.now() + skew;
    for (const e of $$("[data-until]")) {
      const left = Math.max(0, (e.dataset.until - now) / 1000), arc = $(".arc", e);
      text($(".left", e), left > 0 ? exact(left) : "now");
      if (arc) arc.setAttribute("stroke-dasharray", Math.min(100, 100000 * left / e.dataset.total) + " 100");
    }
    for (const e of $$("[data-for]")) text(e, coarse(Math.max(0, (now - e.dataset.for) / 1000)));
    for (const e of $$("[data-ago]")) text(e, ago((now - e.dataset.ago) / 1000));
    const old = (Date.now() - heard) / 1000, lost = !paused && old > Math.max(10, 3 * every / 1000);
    body.classList.toggle("stale", lost);
    body.classList.toggle("paused", paused);
    text($("#live"), paused ? "paused, " + exact(old) + " old" : lost ? "no answer" : "live");
    $("#stale").hidden = !lost;
    if (lost) text($("#stale"), "No answer for " + exact(old) + ": these figures are old");
  }

  async function poll() {
    clearTimeout(timer);
    if (!paused) {
      const mine = ++asked, url = new URL("data.json", document.baseURI);
      url.search = location.search;
      for (const key of ["tool", "group", "ask"]) url.searchParams.delete(key);
      url.searchParams.set("v", version);
      url.searchParams.set("o", order);
      try {
        const answer = await fetch(url, { cache: "no-store", signal: AbortSignal.timeout(8000) });
        if (!answer.ok || !(answer.headers.get("content-type") || "").includes("json")) throw new Error(answer.status);
        const news = await answer.json();
        if (mine !== asked) return; // a later poll asks for something else
        heard = Date.now();
        show(news);
      } catch { /* clocks says how old the figures are */ }
      clocks();
    }
    clearTimeout(timer); // another poll may have begun meanwhile
    timer = setTimeout(poll, document.hidden ? 15 * every : every);
  }

  function show(d) {
    const news = d.v !== version;
    skew = d.at - Date.now();
    $("#banner").className = d.banner;
    $("#strip").className = d.strip;
    $("link[rel=icon]").href = "icon.svg?s=" + d.banner;
    document.title = d.title;
    for (const [id, html] of Object.entries(d.parts)) keepFocus($("#" + id), html);
    const h = $("#banner h2").textContent;
    if (h !== head) say(head = h);
    const complete = rows(d);
    version = d.v;
    order = d.o;
    if (!complete) { version = ""; poll(); return; }
    if (open && news) openPanel(open, false);
    mark();
  }

  // rows puts changed rows in their places, and reports whether none was missing.
  function rows(d) {
    const table = $(".wrap tbody"), focus = document.activeElement.id;
    const have = new Map([...table.children].map(row => [+row.id.slice(1), row]));
    for (const [id, html] of Object.entries(d.rows)) {
      const t = document.createElement("template"), was = have.get(+id);
      t.innerHTML = html;
      const row = t.content.firstElementChild;
      if (was && was.dataset.e !== row.dataset.e) row.classList.add("flash");
      if (was) was.replaceWith(row);
      have.set(+id, row);
    }
    let complete = true;
    if (d.order) {
      let place = table.firstElementChild;
      for (const id of d.order) {
        const row = have.get(id);
        if (!row) { complete = false; continue; }
        have.delete(id);
        if (row === place) place = place.nextElementSibling; else table.insertBefore(row, place);
      }
      for (const row of have.values()) row.remove();
    }
    const f = focus && document.getElementById(focus);
    if (f && f !== document.activeElement) f.focus({ preventScroll: true });
    return complete;
  }

  // keepFocus replaces the inside of e; what has the focus keeps it, by its number.
  function keepFocus(e, html) {
    const things = () => $$("a, button, h2[tabindex]", e), i = things().indexOf(document.activeElement);
    put(e, html);
    if (i >= 0) (things()[i] || things()[0])?.focus({ preventScroll: true });
  }

  function mark() {
    for (const row of $$(".wrap tbody tr")) row.classList.toggle("sel", same(open, $("a", row).search));
  }

  // address changes the address: what is chosen, and what is in the panel. It makes no
  // new entry in the history of the browser.
  function address(change = () => {}, search = location.search) {
    const p = new URLSearchParams(search);
    for (const key of ["tool", "group", "ask"]) p.delete(key);
    change(p);
    const rest = p.toString();
    history.replaceState(null, "", (open || "?") + (open && rest ? "&" : "") + rest);
  }

  async function openPanel(tool, first) {
    if (first) open = tool;
    const answer = await fetch("panel" + tool, { cache: "no-store" }).catch(() => null);
    if (open !== tool || !first && $(".armed", panel)) return;
    if (!answer || !answer.ok) { if (first) { open = ""; say("It is gone."); } return; }
    const html = await answer.text();
    if (open !== tool) return;
    panel.hidden = false;
    keepFocus(panel, html);
    clocks();
    mark();
    if (!first) return;
    address();
    panel.scrollTop = 0;
    $("h2", panel).focus();
  }

  function closePanel() {
    const row = $$(".wrap tbody a, #groups a").find(a => same(open, a.search));
    open = "";
    panel.hidden = true;
    address();
    mark();
    if (row) row.focus();
  }

  function again() { version = ""; poll(); }

  document.addEventListener("click", e => {
    const a = e.target.closest("a");
    if (e.target.closest("#pause")) pause();
    if (e.target.closest("#theme")) nextTheme();
    if (!a || e.ctrlKey || e.metaKey || e.shiftKey || e.button) return;
    if (a.matches("[data-open]")) { e.preventDefault(); openPanel(query(a.search), true); }
    if (a.matches(".close")) { e.preventDefault(); closePanel(); }
    if (a.matches("#nav a, #more a")) { e.preventDefault(); address(undefined, a.search); again(); }
  });

  // Two steps: the first click asks, and for four seconds the second one does it.
  document.addEventListener("submit", async e => {
    const form = e.target, button = $("button", form);
    if (form.id === "find") e.preventDefault();
    if (!form.dataset.act) return;
    e.preventDefault();
    if (!button.classList.contains("armed")) {
      const was = button.textContent;
      button.classList.add("armed");
      button.textContent = button.dataset.sure;
      setTimeout(() => { button.classList.remove("armed"); button.textContent = was; }, 4000);
      return;
    }
    button.classList.remove("armed");
    button.disabled = true;
    const of = new URLSearchParams(new FormData(form));
    const answer = await fetch(form.dataset.act, { method: "POST", body: of, redirect: "manual" }).catch(() => null);
    const done = answer && (answer.ok || answer.type === "opaqueredirect");
    say(done ? button.dataset.done : "That did not work.");
    button.disabled = false;
    if (!done) button.textContent = "That did not work" + (answer && answer.status ? " (" + answer.status + ")" : "");
    poll();
  });

  let typing = 0;
  find.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => {
      address(p => find.value ? p.set("q", find.value) : p.delete("q"));
      again();
    }, 120);
  });

  document.addEventListener("keydown", e => {
    if (e.key === "Escape") {
      if (open) closePanel();
      else if (document.activeElement === find) { find.value = ""; find.dispatchEvent(new Event("input")); find.blur(); }
      return;
    }
    if (e.ctrlKey || e.metaKey || e.altKey || document.activeElement === find) return;
    if (e.key === "/") { e.preventDefault(); find.focus(); }
    if (e.key === "p") pause();
    if (e.key === "j" || e.key === "k") {
      const links = $$(".wrap td.tool a");
      const at = links.findIndex(a => a === document.activeElement || same(open, a.search));
      const next = links[at < 0 ? 0 : Math.min(links.length - 1, Math.max(0, at + (e.key === "j" ? 1 : -1)))];
      if (next && open) openPanel(query(next.search), true); else if (next) next.focus();
    }
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });

  function pause() {
    paused = !paused;
    $("#pause").textContent = paused ? "Resume" : "Pause";
    $("#pause").setAttribute("aria-pressed", paused);
    if (!paused) poll();
    clocks();
  }

  const themes = { "": "auto", dark: "dark", light: "light" };
  function theme(t) { document.documentElement.dataset.theme = t; $("#theme").textContent = "Theme: " + themes[t]; }
  function nextTheme() {
    const t = { "": "dark", dark: "light", light: "" }[document.documentElement.dataset.theme];
    theme(t);
    try { localStorage.setItem("toolhealth-theme", t); } catch { /* it lasts for this page */ }
  }
  let kept = "";
  try { kept = localStorage.getItem("toolhealth-theme"); } catch { /* none is kept */ }
  theme(kept in themes ? kept : "");
  for (const e of $$(".js")) e.hidden = false;
  clocks();
  setInterval(clocks, 500);
  mark();
  poll();
})();
