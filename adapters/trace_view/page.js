"use strict";
// Slots against time. Data: see Picture.as_json. Everything is drawn on canvases; the table and the
// panel say the same in words. `window.tenureTrace` is for tests.
(() => {
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("trace-data").textContent);
  const OWNERS = data.owners;
  const GUTTER = 66, AXIS = 26, PAGES = 110, MOST_ROWS = 200;
  const narrow = new Intl.NumberFormat("en");
  let model = null, lo = 0, hi = 1, byTime = true, wanted = "";
  let hidden = new Set(), current = -1, colours = {}, tableTimer = 0, frame = 0, pixels = null;

  // ---- model: one engine, ready to be searched

  function load(engine) {
    const count = Math.max(engine.at.length, 1);
    const claims = new Map(engine.claims.map((row) => [row[0], {
      claim: row[0], turn: row[1], session: row[2], lane: row[3], base: row[4],
      begun: row[5], ended: row[6], events: row[7] }]));
    const lanes = engine.lanes + (engine.slots ? 1 : 0);  // the last one is the padding slot
    const perLane = (rows) => {
      const index = Array.from({ length: lanes }, () => []);
      rows.forEach((row, place) => { if (index[row[0]]) index[row[0]].push(place); });
      return index;
    };
    return { ...engine, count, claims, lanes, spanIndex: perLane(engine.spans), stepIndex: perLane(engine.steps) };
  }

  const lastAt = () => (model.at.length ? model.at[model.at.length - 1] : 1);
  const place = (event) => (byTime ? (event < model.at.length ? model.at[event] : lastAt()) : event);
  const extent = () => (byTime ? Math.max(lastAt(), 1) : model.count);
  const seconds = (micros) => {
    if (micros >= 1e7) return `${(micros / 1e6).toFixed(1)} s`;
    if (micros >= 1e6) return `${(micros / 1e6).toFixed(3)} s`;
    return micros >= 1e3 ? `${(micros / 1e3).toFixed(2)} ms` : `${Math.round(micros)} µs`;
  };
  const when = (event) => `event ${narrow.format(Math.min(event, model.count))}, ${seconds(event < model.at.length ? model.at[event] : lastAt())}`;
  const laneName = (lane) => {
    if (!model.slots) return `lane ${lane}`;
    if (lane === model.lanes - 1) return "padding";
    if (lane < model.slots) return `slot ${lane}`;
    return lane < model.slots + model.host_slots ? `host ${lane - model.slots}` : "no slot";
  };

  function spanAt(lane, position) {
    const index = model.spanIndex[lane] || [];
    let low = 0, high = index.length - 1, found = -1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (place(model.spans[index[middle]][1]) <= position) { found = middle; low = middle + 1; } else high = middle - 1;
    }
    // Several spans may begin at one moment: the one that lasts is the one to see.
    for (let back = found; back >= 0 && back > found - 8; back--)
      if (place(model.spans[index[back]][2]) >= position) return index[back];
    return -1;
  }

  function matches(claim) {
    if (!wanted) return true;
    const life = model.claims.get(claim);
    if (!life) return false;
    return `${life.session}\n${life.turn}\nclaim ${life.claim}`.toLowerCase().includes(wanted);
  }

  // ---- drawing

  function readColours() {
    const style = getComputedStyle(document.documentElement);
    for (const name of [...OWNERS, "reserved", "frozen", "lane", "line", "ink", "faint", "box", "on", "paper", "accent", "bad"])
      colours[name] = style.getPropertyValue(`--${name}`).trim();
  }

  function fit(canvas, height) {
    const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth || 800;
    canvas.style.height = `${height}px`;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = "11.5px system-ui, 'DejaVu Sans', sans-serif";
    pen.textBaseline = "middle";
    return [pen, width];
  }

  const laneHeight = () => (model.lanes <= 12 ? 30 : model.lanes <= 40 ? 20 : 12);
  const scale = (width) => (width - GUTTER - 8) / (hi - lo);
  const toX = (position, width) => GUTTER + (position - lo) * scale(width);
  const toPosition = (x, width) => lo + (x - GUTTER) / scale(width);

  function pattern(pen, x, y, width, height, crossed) {
    pen.save();
    pen.beginPath(); pen.rect(x, y, width, height); pen.clip();
    pen.strokeStyle = colours.paper; pen.globalAlpha *= 0.55; pen.lineWidth = 1.5;
    pen.beginPath();
    for (let at = x - height - ((x - height) % 7); at < x + width; at += 7) {
      pen.moveTo(at, y + height); pen.lineTo(at + height, y);
      if (crossed) { pen.moveTo(at, y); pen.lineTo(at + height, y + height); }
    }
    pen.stroke(); pen.restore();
  }

  function drawLanes() {
    const canvas = $("lanes"), tall = laneHeight();
    const [pen, width] = fit(canvas, model.lanes * tall);
    for (let lane = 0; lane < model.lanes; lane++) {
      const top = lane * tall;
      pen.fillStyle = colours.lane;
      pen.fillRect(GUTTER, top + 1, width - GUTTER, tall - 2);
      if (tall >= 18 || lane % 4 === 0 || lane === model.lanes - 1) {
        pen.fillStyle = colours.faint;
        pen.fillText(laneName(lane), 6, top + tall / 2);
      }
      if (model.slots && lane === model.lanes - 1) {
        pen.fillStyle = colours.reserved;
        pen.fillRect(GUTTER, top + 2, width - GUTTER, tall - 4);
        pattern(pen, GUTTER, top + 2, width - GUTTER, tall - 4, false);
        continue;
      }
      const labels = drawSpans(pen, lane, top, tall, width);
      drawSteps(pen, lane, top, tall, width);
      for (const [claim, colour, x, wide] of labels) label(pen, claim, colour, x, top, wide, tall);
    }
    for (const [event, what] of model.marks) {
      const x = toX(place(event), width);
      if (x < GUTTER || x > width) continue;
      pen.strokeStyle = colours.bad; pen.setLineDash([4, 3]);
      pen.beginPath(); pen.moveTo(x, 0); pen.lineTo(x, model.lanes * tall); pen.stroke();
      pen.setLineDash([]);
    }
  }

  function firstVisible(rows, index) {
    let low = 0, high = index.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (place(rows[index[middle]][2]) < lo) low = middle + 1; else high = middle;
    }
    return low;
  }

  function drawSpans(pen, lane, top, tall, width) {
    const index = model.spanIndex[lane], labels = [];
    const hasGaps = byTime || scale(width) >= 4;
    let covered = -1;
    for (let n = firstVisible(model.spans, index); n < index.length; n++) {
      const [, from, to, owner, claim] = model.spans[index[n]];
      const begin = place(from);
      if (begin > hi) break;
      if (hidden.has(owner)) continue;
      // On whole pixels, so that a short span is as clear as a long one.
      const x = Math.max(Math.round(toX(begin, width)), GUTTER), end = Math.min(Math.round(toX(place(to), width)), width);
      const isCurrent = claim === current;
      // Its pixel is drawn already; but what is rare is what one looks for.
      if (end <= covered && !isCurrent && owner < OWNERS.indexOf("draining")) continue;
      const wide = Math.max(end - x - (end - x > 5 && hasGaps ? 1 : 0), 1);
      covered = Math.max(end, x + 1);
      pen.globalAlpha = matches(claim) ? 1 : 0.13;
      pen.fillStyle = colours[OWNERS[owner]];
      pen.fillRect(x, top + 2, wide, tall - 4);
      if (wide > 6 && OWNERS[owner] === "draining") pattern(pen, x, top + 2, wide, tall - 4, false);
      if (wide > 6 && OWNERS[owner] === "quarantined") pattern(pen, x, top + 2, wide, tall - 4, true);
      if (wide > 54 && tall >= 18) labels.push([claim, colours[OWNERS[owner]], x, wide]);
      if (isCurrent) {
        pen.globalAlpha = 1; pen.strokeStyle = colours.ink; pen.lineWidth = 2;
        pen.strokeRect(x + 1, top + 2, Math.max(wide - 2, 1), tall - 4); pen.lineWidth = 1;
      }
    }
    pen.globalAlpha = 1;
    return labels;
  }

  function label(pen, claim, colour, x, top, wide, tall) {
    const life = model.claims.get(claim);
    if (!life) return;
    const text = life.session ? `${life.session} · ${life.turn}` : life.turn || `claim ${claim}`;
    pen.save();
    pen.beginPath(); pen.rect(x, top, wide - 4, tall); pen.clip();
    pen.fillStyle = colour; pen.fillRect(x + 3, top + 7, pen.measureText(text).width + 6, tall - 14);
    pen.fillStyle = colours.on; pen.fillText(text, x + 6, top + tall / 2 + 0.5);
    pen.restore();
  }

  function drawSteps(pen, lane, top, tall, width) {
    if (tall < 18) return;
    const index = model.stepIndex[lane];
    pen.lineWidth = 1;
    for (let n = firstVisible(model.steps, index); n < index.length; n++) {
      const [, from, to, , claim, good] = model.steps[index[n]];
      const begin = place(from);
      if (begin > hi) break;
      const x = Math.max(toX(begin, width), GUTTER), end = Math.min(toX(place(to), width), width);
      if (end - x < 4) continue;  // too thin for a box: the span alone says it
      pen.globalAlpha = matches(claim) ? 0.85 : 0.1;
      pen.strokeStyle = colours.box;
      pen.setLineDash(good ? [] : [3, 2]);
      pen.strokeRect(x + 1.5, top + 4.5, end - x - 3, tall - 9);
    }
    pen.setLineDash([]);
    pen.globalAlpha = 1;
  }

  function drawAxis() {
    const [pen, width] = fit($("axis"), AXIS);
    const rough = (hi - lo) / Math.max((width - GUTTER) / 110, 1);
    const power = 10 ** Math.floor(Math.log10(rough));
    let step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
    if (!byTime) step = Math.max(1, Math.round(step));
    pen.fillStyle = colours.faint; pen.strokeStyle = colours.line;
    pen.fillText(byTime ? "time" : "events", 6, AXIS / 2);
    for (let at = Math.ceil(lo / step) * step; at <= hi; at += step) {
      const x = toX(at, width);
      pen.beginPath(); pen.moveTo(x, AXIS - 6); pen.lineTo(x, AXIS); pen.stroke();
      const text = byTime ? seconds(at) : narrow.format(at);
      pen.fillText(text, Math.min(Math.max(x - pen.measureText(text).width / 2, GUTTER), width - 46), AXIS / 2 - 3);
    }
  }

  function usageAt(position) {
    let low = 0, high = model.usage.length - 1, found = null;
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (place(model.usage[middle][0]) <= position) { found = model.usage[middle]; low = middle + 1; } else high = middle - 1;
    }
    return found;
  }

  const PAGE_OWNERS = [...OWNERS, "frozen"];
  function drawPages() {
    const [pen, width] = fit($("pages"), PAGES);
    if (!model.pages) {
      pen.fillStyle = colours.faint; pen.fillText("this model keeps no pages", GUTTER, PAGES / 2);
      return;
    }
    pen.fillStyle = colours.lane; pen.fillRect(GUTTER, 4, width - GUTTER, PAGES - 8);
    for (let x = GUTTER; x < width; x++) {
      const row = usageAt(toPosition(x, width));
      if (!row) continue;
      let bottom = PAGES - 4;
      PAGE_OWNERS.forEach((name, n) => {
        const high = (row[n + 1] / model.pages) * (PAGES - 8);
        if (high <= 0) return;
        pen.fillStyle = colours[name];
        pen.fillRect(x, bottom - high, 1, high);
        bottom -= high;
      });
    }
    pen.fillStyle = colours.faint;
    pen.fillText(narrow.format(model.pages), 6, 11); pen.fillText("0", 6, PAGES - 10);
  }

  function draw() {
    frame = 0; pixels = null;
    if (!model) return;
    drawAxis(); drawLanes(); drawPages();
    clearTimeout(tableTimer);
    tableTimer = setTimeout(fillTable, 120);
  }
  const redraw = () => { if (!frame) frame = requestAnimationFrame(draw); };

  // ---- words

  function element(name, text, parent) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  }

  function spansInView() {
    const found = [];
    for (let lane = 0; lane < model.lanes; lane++) {
      const index = model.spanIndex[lane];
      for (let n = firstVisible(model.spans, index); n < index.length; n++) {
        const span = model.spans[index[n]];
        if (place(span[1]) > hi) break;
        if (!hidden.has(span[3]) && matches(span[4])) found.push(span);
      }
    }
    return found;
  }

  function fillTable() {
    if (!$("table-part").open) return;
    const rows = spansInView(), body = $("spans").tBodies[0];
    body.replaceChildren();
    for (const [lane, from, to, owner, claim] of rows.slice(0, MOST_ROWS)) {
      const life = model.claims.get(claim) || {}, line = element("tr", undefined, body);
      for (const text of [laneName(lane), OWNERS[owner], claim, life.turn || "", life.session || "", when(from), when(to)])
        element("td", String(text), line);
    }
    const more = rows.length > MOST_ROWS ? `, the first ${MOST_ROWS} of them here; zoom in or filter for the others` : "";
    $("spans-caption").textContent = `${narrow.format(rows.length)} spans${more}`;
  }

  function tell(claim) {
    const panel = $("life"), life = model.claims.get(claim);
    panel.replaceChildren();
    if (!life) { panel.innerHTML = '<p class="hint">No claim is chosen.</p>'; return; }
    element("h2", `Claim ${life.claim}`, panel);
    const facts = element("dl", undefined, panel);
    const lasted = life.ended === null ? "still held where the log ends" : seconds(model.at[life.ended] - model.at[life.begun]);
    const base = life.base === null ? "nothing (zeros)" : `claim ${life.base}`;
    const begun = seconds(model.at[life.begun]);
    for (const [name, text] of [["session", life.session || "(one-shot or unknown)"], ["turn", life.turn], ["place", laneName(life.lane)], ["started from", base], ["begun at", begun], ["lasted", lasted]]) {
      element("dt", name, facts);
      element("dd", text, facts);
    }
    const table = element("table", undefined, panel), head = element("tr", undefined, element("thead", undefined, table));
    for (const name of ["event", "time", "what"]) element("th", name, head);
    const body = element("tbody", undefined, table);
    for (const [event, what, fact] of life.events) {
      const line = element("tr", undefined, body);
      element("td", narrow.format(event), line);
      element("td", `+${seconds(model.at[event] - model.at[life.begun])}`, line);
      const cell = element("td", undefined, line);
      element("b", what, cell);
      cell.append(fact ? `, ${fact}` : "");
    }
  }

  function choose(claim) {
    current = claim;
    tell(claim);
    redraw();
  }

  function tipAt(x, y, lines) {
    const tip = $("tip");
    tip.replaceChildren();
    element("b", lines[0], tip);
    lines.slice(1).forEach((line) => element("div", line, tip));
    tip.hidden = false;
    const left = Math.min(x + 14, window.innerWidth - tip.offsetWidth - 8);
    const top = y + 18 + tip.offsetHeight > window.innerHeight ? y - tip.offsetHeight - 10 : y + 18;
    tip.style.left = `${left}px`; tip.style.top = `${top}px`;
  }

  // ---- moving about

  function zoom(factor, around) {
    const whole = extent(), least = byTime ? 5 : 4;
    const size = Math.min(Math.max((hi - lo) * factor, Math.min(least, whole)), whole);
    const centre = around === undefined ? (lo + hi) / 2 : around, share = (centre - lo) / (hi - lo);
    lo = Math.max(0, Math.min(centre - share * size, whole - size));
    hi = lo + size;
    redraw();
  }

  function pan(share) {
    const size = hi - lo;
    lo = Math.max(0, Math.min(lo + share * size, extent() - size));
    hi = lo + size;
    redraw();
  }

  function fitAll() { lo = 0; hi = extent(); redraw(); }

  function useAxis(time) {
    const first = eventNear(lo), last = eventNear(hi), whole = hi - lo >= extent();
    byTime = time;
    $("by-time").setAttribute("aria-pressed", String(time));
    $("by-event").setAttribute("aria-pressed", String(!time));
    if (whole) { fitAll(); return; }
    lo = place(first); hi = Math.max(place(last), lo + (time ? 5 : 4));
    redraw();
  }

  function eventNear(position) {
    if (!byTime) return Math.round(position);
    let low = 0, high = model.at.length;
    while (low < high) { const middle = (low + high) >> 1; if (model.at[middle] < position) low = middle + 1; else high = middle; }
    return low;
  }

  let cursor = { lane: 0, n: -1 };
  function stepTo(lane, n) {
    const index = model.spanIndex[lane] || [];
    cursor = { lane, n: Math.max(0, Math.min(n, index.length - 1)) };
    if (!index.length) { $("life").replaceChildren(element("p", `${laneName(lane)} was never owned.`)); return; }
    const span = model.spans[index[cursor.n]], from = place(span[1]), to = place(span[2]);
    if (from < lo || to > hi) { const size = hi - lo; lo = Math.max(0, Math.min((from + to - size) / 2, extent() - size)); hi = lo + size; }
    choose(span[4]);
    const tall = laneHeight(), view = $("scroll");
    if (lane * tall < view.scrollTop || (lane + 1) * tall > view.scrollTop + view.clientHeight) view.scrollTop = lane * tall - view.clientHeight / 2;
    $("lanes").setAttribute("aria-label", `${laneName(lane)}: ${OWNERS[span[3]]}, claim ${span[4]}, ${when(span[1])} to ${when(span[2])}`);
  }

  function onKey(event) {
    const keys = {
      ArrowRight: () => (event.shiftKey ? pan(0.2) : stepTo(cursor.lane, cursor.n + 1)),
      ArrowLeft: () => (event.shiftKey ? pan(-0.2) : stepTo(cursor.lane, cursor.n - 1)),
      ArrowDown: () => hop(1), ArrowUp: () => hop(-1),
      "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), 0: fitAll, Home: fitAll,
      Escape: () => choose(-1),
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  }

  function hop(by) {
    const lane = Math.max(0, Math.min(cursor.lane + by, Math.max(model.lanes - (model.slots ? 2 : 1), 0)));
    const index = model.spanIndex[cursor.lane], here = index && index[cursor.n] !== undefined ? place(model.spans[index[cursor.n]][1]) : lo;
    const found = spanAt(lane, here);
    stepTo(lane, found < 0 ? 0 : model.spanIndex[lane].indexOf(found));
  }

  function pointed(event) {
    const box = $("lanes").getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    return { x, lane: Math.floor(y / laneHeight()), position: toPosition(x, box.width), width: box.width };
  }

  function wire() {
    const canvas = $("lanes");
    let drag = null;
    canvas.addEventListener("pointerdown", (event) => { drag = { x: event.clientX, moved: false }; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointermove", (event) => {
      const at = pointed(event);
      if (drag) {
        const by = drag.x - event.clientX;
        if (Math.abs(by) > 3 || drag.moved) { drag.moved = true; drag.x = event.clientX; pan(by / (at.width - GUTTER)); }
        return;
      }
      const mark = model.marks.find(([number]) => Math.abs(toX(place(number), at.width) - at.x) < 3);
      if (mark) { tipAt(event.clientX, event.clientY, [mark[1], `at ${when(mark[0])}`]); return; }
      const found = at.x < GUTTER ? -1 : spanAt(at.lane, at.position);
      if (found < 0 || hidden.has(model.spans[found][3])) { $("tip").hidden = true; return; }
      const [lane, from, to, owner, claim] = model.spans[found], life = model.claims.get(claim) || {};
      tipAt(event.clientX, event.clientY, [`${laneName(lane)}: ${OWNERS[owner]}`, `claim ${claim}${life.turn ? `, turn ${life.turn}` : ""}`,
        life.session ? `session ${life.session}` : "no session", `from ${when(from)}`, `to ${when(to)}`]);
    });
    canvas.addEventListener("pointerup", (event) => {
      const was = drag; drag = null;
      if (was && was.moved) return;
      const at = pointed(event), found = spanAt(at.lane, at.position);
      if (found >= 0) { cursor = { lane: at.lane, n: model.spanIndex[at.lane].indexOf(found) }; choose(model.spans[found][4]); } else choose(-1);
    });
    canvas.addEventListener("pointerleave", () => { $("tip").hidden = true; });
    canvas.addEventListener("wheel", (event) => {
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX || event.deltaY) / 900);
      else zoom(Math.exp(event.deltaY / 400), pointed(event).position);
      event.preventDefault();
    }, { passive: false });
    canvas.addEventListener("keydown", onKey);
    $("pages").addEventListener("pointermove", (event) => {
      const box = $("pages").getBoundingClientRect(), row = usageAt(toPosition(event.clientX - box.left, box.width));
      const told = row ? PAGE_OWNERS.map((name, n) => [name, row[n + 1]]).filter(([, pages]) => pages).map(([name, pages]) => `${pages} ${name}`) : [];
      const used = row ? row.slice(1).reduce((sum, each) => sum + each, 0) : 0;
      $("page-facts").textContent = [...told, `${model.pages - used} free`].join(", ");
    });
    $("zoom-in").onclick = () => zoom(0.5);
    $("zoom-out").onclick = () => zoom(2);
    $("fit").onclick = fitAll;
    $("by-time").onclick = () => useAxis(true);
    $("by-event").onclick = () => useAxis(false);
    $("filter").oninput = (event) => { wanted = event.target.value.trim().toLowerCase(); redraw(); };
    $("table-part").ontoggle = fillTable;
    $("engine").onchange = (event) => use(Number(event.target.value));
    new ResizeObserver(redraw).observe($("scroll"));
  }

  function useTheme(name) {
    document.documentElement.dataset.theme = name;
    readColours();
    redraw();
  }

  function legend() {
    const box = $("legend");
    const also = { frozen: "frozen pages", reserved: "reserved (padding)", lane: "free", step: "step on the device", late: "failed step", death: "death" };
    [...OWNERS, ...Object.keys(also)].forEach((name, owner) => {
      const isOwner = owner < OWNERS.length, item = element(isOwner ? "button" : "span", undefined, box);
      const swatch = element("i", undefined, item);
      if (["step", "late", "death"].includes(name)) swatch.className = name;
      else swatch.style.background = `var(--${name})`;
      item.append(also[name] || name);
      if (!isOwner) return;
      item.type = "button";
      item.setAttribute("aria-pressed", "true");
      item.onclick = () => {
        if (hidden.has(owner)) hidden.delete(owner); else hidden.add(owner);
        item.setAttribute("aria-pressed", String(!hidden.has(owner)));
        redraw();
      };
    });
  }

  function use(number) {
    model = load(data.engines[number]);
    $("engine").value = number;
    const verdict = $("verdict");
    verdict.className = `verdict ${model.conserved ? "good" : "bad"}`;
    verdict.textContent = model.conserved ? "✓ conserved" : `✗ not conserved: ${model.problems.length} findings`;
    verdict.title = model.problems.join("\n");
    const names = new Set();
    for (const life of model.claims.values()) { if (life.session) names.add(life.session); if (names.size > 500) break; }
    $("names").replaceChildren(...[...names].map((name) => { const option = element("option"); option.value = name; return option; }));
    $("lanes").setAttribute("aria-label", `${model.slots} slots over ${narrow.format(model.count)} events, ${model.claims.size} claims`);
    current = -1; cursor = { lane: 0, n: -1 };
    lo = 0; byTime = isSpreadOverTime(); hi = extent();
    useAxis(byTime);
    const list = $("life");
    list.replaceChildren(element("p", "Click a span, or step to it with the arrow keys, to read the life of its claim."));
    list.firstChild.className = "hint";
    if (model.problems.length) {
      list.replaceChildren();
      element("h2", "What the audit found", list);
      const items = element("ul", undefined, list); items.className = "problems";
      model.problems.slice(0, 20).forEach((text) => element("li", text, items));
    }
  }

  // One long wait would press all that happened into a few pixels; then the events are the better axis.
  function isSpreadOverTime() {
    const buckets = new Set(model.at.map((at) => Math.floor((at / Math.max(lastAt(), 1)) * 200)));
    return buckets.size >= Math.min(60, model.count / 4);
  }

  function start() {
    $("engine-choice").hidden = data.engines.length < 2;
    data.engines.forEach((engine, n) => { const option = element("option", engine.engine, $("engine")); option.value = n; });
    $("theme").onclick = () => useTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => useTheme(event.matches ? "dark" : "light"));
    useTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    if (!data.engines.length) {
      // Nothing to draw, and nothing to press.
      $("verdict").textContent = "The log holds no ledger's events.";
      document.querySelector(".tools").remove();
      document.querySelector("main").remove();
      return;
    }
    legend();
    wire();
    use(0);
  }

  function readBack(canvas) {
    const copy = document.createElement("canvas"), pen = copy.getContext("2d", { willReadFrequently: true });
    copy.width = canvas.width; copy.height = canvas.height;
    pen.drawImage(canvas, 0, 0);
    return pen.getImageData(0, 0, copy.width, copy.height).data;
  }

  window.tenureTrace = {
    owner: (lane, event) => {
      const found = (model.spanIndex[lane] || []).map((n) => model.spans[n]).find((span) => span[1] <= event && event < span[2]);
      return found ? OWNERS[found[3]] : "free";
    },
    colour: (lane, event) => {
      const canvas = $("lanes"), ratio = canvas.width / canvas.clientWidth, x = toX(place(event) + (byTime ? 0 : 0.5), canvas.clientWidth);
      pixels = pixels || readBack(canvas);
      const at = 4 * (Math.floor((lane * laneHeight() + 2.5) * ratio) * canvas.width + Math.floor(x * ratio));
      return `#${[...pixels.slice(at, at + 3)].map((each) => each.toString(16).padStart(2, "0")).join("")}`;
    },
    colours: () => colours, draw, use, useAxis, zoom, view: () => [lo, hi], spansInView,
    timeToDraw: () => { const begun = performance.now(); draw(); return performance.now() - begun; },
  };
  start();
})();
