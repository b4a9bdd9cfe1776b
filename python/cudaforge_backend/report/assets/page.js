"use strict";
// Everything in the data may come from anyone: it becomes text nodes, never markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const SVG = "http://www.w3.org/2000/svg";

  // ---- Elements ----

  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === true) node.setAttribute(name, "");
      else if (value !== null && value !== undefined && value !== false) {
        node.setAttribute(name, value);
      }
    }
    for (const child of children.flat(3)) {
      if (child !== null && child !== undefined && child !== "") node.append(child);
    }
    return node;
  }
  const el = (tag, attributes, ...children) =>
    fill(document.createElement(tag), attributes, children);
  const shape = (tag, attributes, ...children) =>
    fill(document.createElementNS(SVG, tag), attributes, children);
  const notes = (lines) => lines.filter(Boolean).map((line) => el("p", { class: "note" }, line));

  function command(label, line) {
    return line ? el("div", { class: "command" }, label, el("code", { tabindex: 0 }, line)) : null;
  }
  function facts(pairs) {
    const shown = pairs.filter(([, text]) => text !== null && text !== "" && text !== undefined);
    return el("dl", { class: "facts" }, shown.map(([name, text]) =>
      [el("dt", {}, name), el("dd", {}, text)]));
  }
  function section(id, title, ...children) {
    return el("section", { "aria-labelledby": id }, el("h2", { id }, title), children);
  }

  // ---- Numbers ----

  const fixed = (value, digits) => value.toLocaleString("en-US",
    { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const us = (value) => (value === null ? "" : fixed(value, value < 10 ? 2 : 1));
  const withUs = (value) => (value === null ? "" : `${us(value)} µs`);
  const percent = (value) => (value === null ? "" : `${fixed(value * 100, 1)}%`);
  const counted = (n, what) => `${fixed(n, 0)} ${what}${n === 1 ? "" : "s"}`;
  const ms = (value) => `${fixed(value, value < 1 ? 4 : value < 100 ? 3 : 1)} ms`;
  const range = (ratio) => `[${fixed(ratio.low, 2)}, ${fixed(ratio.high, 2)}]`;
  function metric(value, unit) {
    if (!(value > 0)) return "";
    const step = Math.max(0, Math.min(5, Math.floor(Math.log10(value) / 3)));
    const scaled = value / 1000 ** step;
    return `${fixed(scaled, scaled < 10 ? 2 : scaled < 100 ? 1 : 0)} ${" kMGTP"[step].trim()}${unit}`;
  }

  // ---- Times of graphs and models ----

  function scaleOf(rows) {
    const all = rows.flatMap((row) => [...row.ratios, ...(row.control ? [row.control] : [])]);
    const ends = all.flatMap((r) => [r.low, r.high]).filter((v) => v > 0);
    const low = Math.log(ends.reduce((a, b) => Math.min(a, b), 0.9));
    const high = Math.log(ends.reduce((a, b) => Math.max(a, b), 1.1));
    return (value) => 2 + 96 * ((Math.log(Math.max(value, 1e-9)) - low) / (high - low));
  }
  function place(className, left, width) {
    const mark = el("i", { class: className });
    mark.style.left = `${Math.max(0, Math.min(100, left))}%`;
    if (width !== undefined) mark.style.width = `${Math.max(0, Math.min(100, width))}%`;
    return mark;
  }
  function ratioLine(ratio, control, at, isControl) {
    const track = el("span", { class: isControl ? "track is-control" : "track", "aria-hidden": "true" });
    if (control) track.append(place("band", at(control.low), at(control.high) - at(control.low)));
    track.append(place("one", at(1)));
    track.append(place("whisker", at(ratio.low), at(ratio.high) - at(ratio.low)));
    track.append(place("dot", at(ratio.median)));
    return el("div", { class: "ratio" },
      el("span", { class: isControl ? "muted" : null }, ratio.label), track,
      el("span", { class: "figure" }, `${fixed(ratio.median, 2)}× `,
        el("span", { class: "muted" }, range(ratio))));
  }
  function timedRow(row, at) {
    const longest = Math.max(...row.ways.map((way) => way.ms));
    const bars = row.ways.map((way) => {
      const bar = el("span", { class: way.label === row.served ? "bar is-served" : "bar", "aria-hidden": "true" });
      bar.style.width = `${(100 * way.ms) / longest}%`;
      const served = way.label === row.served ? el("span", { class: "served" }, " served") : null;
      return [el("span", {}, way.label, served), bar, el("span", { class: "figure" }, ms(way.ms))];
    });
    const ratios = row.ratios.map((ratio) => ratioLine(ratio, row.control, at, false));
    if (row.control) ratios.push(ratioLine(row.control, row.control, at, true));
    return el("div", { class: "timed" }, el("h3", { class: "anywhere" }, row.name),
      el("div", { class: "pair" },
        bars.length ? el("div", { class: "bars" }, bars) : null,
        ratios.length ? el("div", { class: "ratios" }, ratios) : null),
      notes(row.notes));
  }
  function timed(rows) {
    if (!rows.length) return [];
    const at = scaleOf(rows);
    const control = rows.some((row) => row.control);
    return [
      el("p", { class: "note" },
        "Bars: median time of one call. Dots: how many times as fast, in interleaved rounds. ",
        "Whiskers: 95% intervals. Vertical line: 1, no difference.",
        control ? " Grey band: the A/A control, the baseline against itself." : ""),
      rows.map((row) => timedRow(row, at)),
    ];
  }

  // ---- Regions ----

  const TONE = { winner: "good", "for eager": "good", "no winner": "bad", unused: "warn", skipped: "" };
  const VERDICT_TONE = { accepted: "good", too_slow: "warn", not_judged: "", "not judged": "", "no reply": "" };
  const status = (word, tones, other = "") =>
    el("span", { class: `status ${Object.hasOwn(tones, word) ? tones[word] : other}` }, word);
  const breakable = (author) => (author ? author.split(/(?<=[:/])/).map((part) => [part, el("wbr")]) : "–");
  const arrows = (ops) => ops.split(" -> ").join(" → ");
  const short = (region) => region.key.slice(0, 12);
  const rounds = (region) => region.sessions.flatMap((session) => session.rounds);
  const tried = (region) => region.candidates.length + rounds(region).length;
  function best(region) {
    const times = [region.aten_us, region.inductor_us].filter((t) => t !== null);
    return times.length ? Math.min(...times) : null;
  }

  function columns() {
    const all = [
      { name: "Region", text: true, value: (r) => r.ops, cls: "region", cell: (r) => [
        el("a", { href: `#r${r.index}` }, arrows(r.ops)),
        r.times > 1 ? ` ×${r.times}` : null,
        el("span", { class: "sub" }, r.shapes),
        el("span", { class: "sub mono" }, short(r), r.within ? ` in ${r.within.slice(0, 12)}` : ""),
      ] },
      { name: "Verdict", text: true, value: (r) => r.status, cls: "", cell: (r) => status(r.status, TONE) },
      data.share_of && { name: "Share", value: (r) => r.share, cls: "n share", cell: (r) => {
        if (r.share === null) return "–";
        const fillOf = el("i", {});
        fillOf.style.width = `${Math.min(100, r.share * 100)}%`;
        return [percent(r.share), el("span", { class: "meter", "aria-hidden": "true" }, fillOf)];
      } },
      { name: "Rival, µs", value: best, cls: "n", cell: (r) => us(best(r)) || "–" },
      { name: "Kernel, µs", value: (r) => r.winner_us, cls: "n", cell: (r) => us(r.winner_us) || "–" },
      { name: "Speed-up", value: (r) => r.speedup && r.speedup.median, cls: "n", cell: (r) => r.speedup ? [
        `${fixed(r.speedup.median, 2)}×`,
        el("span", { class: "sub" }, range(r.speedup)), el("span", { class: "sub" }, `over ${r.speedup.label}`)] : "–" },
    ].filter(Boolean);
    if (data.regions.some((r) => r.headroom !== null)) {
      all.push({ name: "Headroom", value: (r) => r.headroom, cls: "n", cell: (r) => percent(r.headroom) || "–" });
    }
    all.push({ name: "Author", text: true, value: (r) => r.author, cls: "text", cell: (r) => breakable(r.author) });
    return all;
  }

  function regionTable() {
    const cols = columns();
    let by = Math.max(0, cols.findIndex((c) => c.name === "Share")), up = false;
    const rows = data.regions.map((r) => ({
      region: r,
      words: [r.ops, r.shapes, r.key, r.author, r.status, r.why, r.arch].join(" ").toLowerCase(),
      node: el("tr", {}, cols.map((c) => el("td", { class: c.cls }, c.cell(r)))),
    }));
    const heads = cols.map((c, i) => {
      const button = el("button", { type: "button" }, c.name);
      button.addEventListener("click", () => {
        up = i === by ? !up : Boolean(c.text);
        by = i;
        show();
      });
      return el("th", { scope: "col", class: c.cls.includes("n") && !c.text ? "n" : null }, button);
    });
    const body = el("tbody");
    const empty = el("p", { class: "empty", hidden: true }, "No region matches.");
    const count = el("span", { class: "count", role: "status" });
    const search = el("input", { type: "search", placeholder: "Filter by text", "aria-label": "Filter regions by text" });
    const verdicts = [...new Set(data.regions.map((r) => r.status))].sort();
    const select = el("select", { "aria-label": "Filter regions by verdict" },
      el("option", { value: "" }, "All verdicts"), verdicts.map((v) => el("option", { value: v }, v)));

    function compare(a, b) {
      const [x, y] = [a, b].map((row) => cols[by].value(row.region));
      if (x === y) return a.region.index - b.region.index;
      if (x === null || x === "") return 1;  // unknown ones last, either way
      if (y === null || y === "") return -1;
      return (x < y ? -1 : 1) * (up ? 1 : -1);
    }
    function show() {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const shown = rows.filter((row) => (!select.value || row.region.status === select.value) &&
        words.every((word) => row.words.includes(word))).sort(compare);
      body.replaceChildren(...shown.map((row) => row.node));
      empty.hidden = shown.length > 0;
      count.textContent = shown.length === rows.length ? counted(rows.length, "region")
        : `${shown.length} of ${counted(rows.length, "region")}`;
      heads.forEach((head, i) => {
        if (i === by) head.setAttribute("aria-sort", up ? "ascending" : "descending");
        else head.removeAttribute("aria-sort");
      });
    }
    search.addEventListener("input", show);
    select.addEventListener("change", show);
    show();
    return [
      rows.length > 1 ? el("div", { class: "tools" }, search, select, count) : el("p", { class: "tools" }),
      el("div", { class: "box", role: "region", "aria-label": "Table of regions", tabindex: 0 },
        el("table", { id: "regions" }, el("thead", {}, el("tr", {}, heads)), body), empty),
    ];
  }

  // ---- Roofline ----

  const RIGHT = new Set(["accepted", "too_slow"]);
  function pointsOf(region) {
    const at = (t) => region.flops / (t * 1e-6);
    const points = [];
    const add = (kind, t, label) => {
      if (t > 0) points.push({ kind, y: at(t), label: `${label}: ${withUs(t)}, ${metric(at(t), "op/s")}` });
    };
    for (const c of region.candidates) add(RIGHT.has(c.verdict) ? "made" : "wrong", c.us, `${c.author}, ${c.verdict}`);
    for (const r of rounds(region)) add(RIGHT.has(r.verdict) ? "agent" : "wrong", r.us, `round ${r.id}, ${r.verdict}`);
    if (points.length || region.winner_us) add("rival", best(region), "race: faster rival");
    add("winner", region.winner_us, "race: best kernel");
    return points;
  }
  function mark(kind, x, y) {
    switch (kind) {
      case "agent": return shape("path", { class: kind, d: `M${x} ${y - 5}l5 5-5 5-5-5z` });
      case "wrong": return shape("path", { class: kind, d: `M${x - 3.5} ${y - 3.5}l7 7m0-7l-7 7` });
      case "rival": return shape("path", { class: kind, d: `M${x - 7} ${y}h14` });
      case "winner": return shape("circle", { class: kind, cx: x, cy: y, r: 4.5 });
      default: return shape("circle", { class: "made", cx: x, cy: y, r: 4 });
    }
  }
  const KINDS = [["made", "generators' kernel"], ["agent", "agents' kernel"], ["wrong", "not right"],
    ["winner", "best kernel, in the race"], ["rival", "faster rival, in the race"]];

  function rooflinePlot() {
    const plotted = data.regions.map((region) => ({
      region, x: region.flops / region.bytes,
      points: region.flops > 0 && region.bytes > 0 ? pointsOf(region) : [],
    })).filter((one) => one.points.length);
    const left = data.regions.filter((r) => (tried(r) || r.winner_us) && !(r.flops > 0 && r.bytes > 0)).length;
    const without = left ? `${counted(left, "region")} without arithmetic cannot be shown.` : "";
    if (!plotted.length) {
      return [notes(["No candidate was timed.", data.roof_note, without])];
    }
    const xs = plotted.map((one) => one.x);
    const ys = plotted.flatMap((one) => one.points.map((p) => p.y));
    const bandwidths = data.roofs.filter((r) => r.kind === "bandwidth");
    const peaks = data.roofs.filter((r) => r.kind === "compute");
    const peak = Math.max(0, ...peaks.map((r) => r.rate));
    for (const b of bandwidths) for (const x of xs) ys.push(peak ? Math.min(x * b.rate, peak) : x * b.rate);
    const least = (values) => values.reduce((a, b) => Math.min(a, b));  // there may be very many
    const most = (values) => values.reduce((a, b) => Math.max(a, b));
    const log = (values, pad) => [Math.log10(least(values)) - pad, Math.log10(most(values)) + pad];
    const [x0, x1] = log(xs, 0.45), [y0, y1] = log(ys, 0.3);

    const said = el("p", { class: "picked-text", role: "status" });
    const holder = el("div", {});
    const limitOf = (roof) => `${roof.label} ${metric(roof.rate, roof.kind === "bandwidth" ? "B/s" : "op/s")}`;
    const limits = el("span", { hidden: true }, data.roofs.length ? `Lines: ${data.roofs.map(limitOf).join(" · ")}` : "");
    function pick(svg, one, node) {
      svg.classList.toggle("picked", Boolean(one));
      for (const a of svg.querySelectorAll(".is-picked")) a.classList.remove("is-picked");
      if (node) node.classList.add("is-picked");
      said.replaceChildren();
      if (!one) { said.append(el("span", { class: "muted" }, "Point at a column, or move to it by keyboard, to see its region.")); return; }
      const r = one.region;
      said.append(arrows(r.ops), el("span", { class: "muted" },
        `  ${short(r)}: ${metric(r.flops, "op")} and ${metric(r.bytes, "B")} a call, ` +
        `${fixed(one.x, 2)} op/B, ${counted(one.points.length, "point")}`));
    }
    function draw(width) {
      const height = Math.round(Math.max(300, Math.min(430, width * 0.6)));
      const narrow = width < 600;  // no room for labels at the lines: they are in the legend then
      limits.hidden = !narrow;
      const box = { l: 76, r: 14, t: 16, b: 46 };
      const X = (v) => box.l + ((Math.log10(v) - x0) / (x1 - x0)) * (width - box.l - box.r);
      const Y = (v) => height - box.b - ((Math.log10(v) - y0) / (y1 - y0)) * (height - box.t - box.b);
      const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "group",
        "aria-label": "Roofline plot: operations per second over operations per byte" });
      const ticks = (a, b, most) => {
        const steps = b - a < 1.2 ? [1, 2, 5] : b - a < 2.5 ? [1, 3] : [1];
        const found = [];
        for (let e = Math.floor(a); e <= Math.ceil(b); e += 1) {
          for (const s of steps) if (Math.log10(s) + e >= a && Math.log10(s) + e <= b) found.push(s * 10 ** e);
        }
        const every = Math.ceil(found.length / most);
        return found.filter((_, i) => i % every === 0);
      };
      for (const v of ticks(x0, x1, width / 60)) {
        svg.append(shape("path", { class: "grid", d: `M${X(v)} ${box.t}V${height - box.b}` }),
          shape("text", { x: X(v), y: height - box.b + 18, "text-anchor": "middle" }, String(Number(v.toPrecision(2)))));
      }
      for (const v of ticks(y0, y1, 8)) {
        svg.append(shape("path", { class: "grid", d: `M${box.l} ${Y(v)}H${width - box.r}` }),
          shape("text", { x: box.l - 8, y: Y(v) + 4, "text-anchor": "end" }, metric(v, "op/s").replace(/\.0+ /, " ")));
      }
      svg.append(shape("text", { x: (box.l + width - box.r) / 2, y: height - 8, "text-anchor": "middle" }, "operations per byte"));
      const ends = [10 ** x0, 10 ** x1];
      const visible = (v) => Math.log10(v) >= y0 && Math.log10(v) <= y1;
      for (const roof of bandwidths) {
        const clipped = (x) => Math.min(x, (peak || Infinity) / roof.rate, 10 ** y1 / roof.rate);
        const [a, b] = [Math.max(ends[0], 10 ** y0 / roof.rate), clipped(ends[1])];
        if (a >= b) continue;
        const [xa, ya, xb, yb] = [X(a), Y(a * roof.rate), X(b), Y(b * roof.rate)];
        const middle = 0.42;  // of the line, where its label is: the fastest one's above it
        const [x, y] = [xa + middle * (xb - xa), ya + middle * (yb - ya)];
        const turn = (Math.atan2(yb - ya, xb - xa) * 180) / Math.PI;
        const above = roof.rate === Math.max(...bandwidths.map((other) => other.rate)) && bandwidths.length > 1;
        svg.append(shape("path", { class: "roof", d: `M${xa} ${ya}L${xb} ${yb}` }),
          narrow ? "" : shape("text", { transform: `translate(${x} ${y}) rotate(${turn})`, dy: above ? -6 : 15, "text-anchor": "middle" }, limitOf(roof)));
      }
      let labels = [];  // of lines so near to each other that they share one
      const shown = peaks.filter((roof) => visible(roof.rate)).sort((p, q) => p.rate - q.rate);
      shown.forEach((roof, i) => {
        labels.push(limitOf(roof));
        svg.append(shape("path", { class: "roof", d: `M${X(ends[0])} ${Y(roof.rate)}H${X(ends[1])}`, "stroke-dasharray": "4 4" }));
        if (shown[i + 1] && Y(roof.rate) - Y(shown[i + 1].rate) < 15) return;
        if (!narrow) svg.append(shape("text", { x: width - box.r - 4, y: Y(roof.rate) - 6, "text-anchor": "end" }, labels.join(" · ")));
        labels = [];
      });
      if (!data.roofs.length) svg.append(shape("text", { class: "noroof", x: width - box.r - 6, y: height - box.b - 10, "text-anchor": "end" }, narrow ? "no roof" : "no roof: the device's limits are not known"));
      for (const one of plotted) {
        const x = X(one.x);
        const places = one.points.map((p) => Y(p.y));
        const [top, bottom] = [Math.min(...places) - 9, Math.max(...places) + 9];
        const group = shape("a", { href: `#r${one.region.index}`, "aria-label": `${one.region.ops}, ${counted(one.points.length, "point")}` },
          shape("rect", { class: "hit", x: x - 10, y: top, width: 20, height: bottom - top, rx: 4 }),
          one.points.map((p, i) => mark(p.kind, x, places[i])));
        const name = () => {  // the points of a group that is looked at, by the browser's own tips
          if (group.querySelector("title")) return;
          one.points.forEach((p, i) => group.children[i + 1].append(shape("title", {}, p.label)));
        };
        for (const event of ["pointerenter", "focus"]) group.addEventListener(event, () => { name(); pick(svg, one, group); });
        for (const event of ["pointerleave", "blur"]) group.addEventListener(event, () => pick(svg, null, null));
        svg.append(group);
      }
      holder.replaceChildren(svg);
      pick(svg, null, null);
    }
    let drawn = 0;
    new ResizeObserver(() => {
      const width = Math.floor(holder.clientWidth);
      if (width > 0 && width !== drawn) draw((drawn = width));
    }).observe(holder);
    const used = new Set(plotted.flatMap((one) => one.points.map((p) => p.kind)));
    return [
      notes(["Each column is a region; up is faster. Operations and bytes are the least that the region needs.",
        `${data.roof_note} ${without}`,
        "Candidates are timed by the worker during the search, the race by another clock."]),
      el("figure", { class: "plot" }, holder,
        el("div", { class: "legend" }, KINDS.filter(([kind]) => used.has(kind)).map(([kind, label]) =>
          el("span", {}, shape("svg", { viewBox: "0 0 14 14", "aria-hidden": "true" }, mark(kind, 7, 7)), label)), limits), said),
    ];
  }

  // ---- Lineage ----

  function lazy(node, make) {  // what a closed element holds is made when it is opened
    node.addEventListener("toggle", () => {
      if (node.open && node.children.length === 1) node.append(make());
    });
    return node;
  }
  const source = (text) => el("pre", { tabindex: 0 }, el("code", {}, text));
  function diffOf(lines) {
    const cls = { "+": "row added", "-": "row removed", "@": "row hunk" };
    return el("pre", { tabindex: 0 }, el("code", {}, lines.map((line) =>
      el("span", { class: Object.hasOwn(cls, line[0]) ? cls[line[0]] : "row" }, line || " "))));
  }
  function roundBody(round) {
    return el("div", { class: "body" },
      facts([
        ["Says", round.message && el("span", { class: "words" }, round.message)],
        ["Judge", round.issue && el("span", { class: "words" }, round.issue)],
        ["Plan", round.plan && el("span", { class: "words" }, round.plan)],
        ["Rival", round.us === null ? "" : withUs(round.rival_us)],
        ["Cost", round.cost],
        ["Took", round.seconds === null ? "" : `${fixed(round.seconds, 1)} s`],
        ["Documents", round.documents.join(", ")],
      ]),
      round.diff.length ? el("details", { class: "diff", open: true },
        el("summary", {}, `Changes since round ${round.diff_of}`), diffOf(round.diff)) : null,
      round.diff_of !== null && !round.diff.length ? el("p", { class: "note" }, `The same source as round ${round.diff_of}.`) : null,
      round.source ? lazy(el("details", { class: "source" }, el("summary", {}, `Source (${round.language || "unknown language"})`)),
        () => source(round.source)) : null,
      round.reply ? lazy(el("details", {}, el("summary", {}, "Reply without a source")), () => source(round.reply)) : null);
  }
  function roundNode(round) {
    const gain = round.us && round.rival_us ? `, ${fixed(round.rival_us / round.us, 2)}× the rival` : "";
    return lazy(el("details", { class: "round" }, el("summary", {},
      el("span", { class: "mono" }, `${round.id} `), `${round.kind} `, status(round.verdict, VERDICT_TONE, "bad"),
      round.us === null ? "" : ` ${withUs(round.us)}${gain}`)), () => roundBody(round));
  }
  function sessionNode(session) {
    const DEEPEST = 8;  // deeper rounds stand in line: a narrow screen has no room for more
    const root = el("ul", { class: "tree" });
    const lists = [root];
    for (const round of session.rounds) {
      const depth = Math.min(round.depth, DEEPEST);
      while (lists.length <= depth) {
        const own = el("ul");
        const last = lists[lists.length - 1];
        (last.lastElementChild || last).append(own);
        lists.push(own);
      }
      lists.length = depth + 1;
      lists[depth].append(el("li", {}, roundNode(round)));
    }
    return [el("h3", {}, `Session ${session.name.slice(0, 8)}`), root,
      notes([session.end ? `Ended: ${session.end}` : "Cut off: the next session resumes it.", session.cost && `In all: ${session.cost}.`])];
  }
  function madeTable(candidates) {
    const heads = [["#", "n"], ["Author", ""], ["Verdict", ""], ["µs", "n"], ["Took, s", "n"], ["Parameters", ""]];
    return [el("h3", {}, "Generators"), el("div", { class: "box", role: "region", "aria-label": "Generators' candidates", tabindex: 0 },
      el("table", {}, el("thead", {}, el("tr", {}, heads.map(([name, cls]) => el("th", { scope: "col", class: cls }, name)))),
        el("tbody", {}, candidates.map((c, i) => el("tr", {},
          el("td", { class: "n" }, i + 1), el("td", {}, c.author),
          el("td", { class: "text" }, status(c.verdict, VERDICT_TONE, "bad"), c.message ? el("span", { class: "sub" }, c.message) : null),
          el("td", { class: "n" }, us(c.us) || "–"),
          el("td", { class: "n" }, c.seconds === null ? "–" : fixed(c.seconds, 1)),
          el("td", { class: "text mono" }, c.params)))))),
    notes(["Their sources are not stored: they are made from the parameters."])];
  }
  function placeBody(r) {
    return el("div", { class: "inside" },
      r.why === r.status ? null : el("p", {}, r.why), notes(r.notes),
      facts([
        ["Key", el("span", { class: "mono" }, r.key)], ["Architecture", r.arch], ["Proven on", r.device], ["Part of", r.within],
        ["ATen", withUs(r.aten_us)], ["Inductor", withUs(r.inductor_us)], ["Best kernel", withUs(r.winner_us)],
        ["Speed-up", r.speedup ? `${fixed(r.speedup.median, 2)}× ${range(r.speedup)} over ${r.speedup.label}` : ""],
        ["Floor", withUs(r.floor_us)], ["Moves", metric(r.bytes, "B")], ["Computes", metric(r.flops, "op")],
      ]),
      lazy(el("details", {}, el("summary", {}, "Program")), () => source(r.program.join("\n"))),
      r.candidates.length ? madeTable(r.candidates) : null,
      r.sessions.map(sessionNode),
      tried(r) ? null : notes(["No candidate is stored."]),
      r.commands.map((c) => command(c.name, c.text)));
  }
  function placeNode(r) {
    const made = r.candidates.length, own = rounds(r).length;
    const counts = [made ? `${made} generated` : "", own ? `${own} by agents` : ""].filter(Boolean).join(", ");
    return lazy(el("details", { class: "place", id: `r${r.index}` }, el("summary", {}, el("span", { class: "line" },
      el("span", { class: "ops" }, arrows(r.ops), " ", el("span", { class: "mono muted" }, short(r))),
      status(r.status, TONE), el("span", { class: "muted" }, counts || "none tried")))), () => placeBody(r));
  }
  function openTarget() {
    const node = /^#r\d+$/.test(location.hash) && document.getElementById(location.hash.slice(1));
    if (!node) return;
    node.open = true;
    node.querySelector("summary").focus({ preventScroll: true });
    node.scrollIntoView();
  }

  // ---- Page ----

  function themeButton() {
    const root = document.documentElement;
    const stored = (value) => {
      try {
        if (value !== undefined) localStorage.setItem("cudaforge-theme", value);
        return localStorage.getItem("cudaforge-theme");
      } catch { return null; }  // a browser may refuse it to a file
    };
    const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    const before = stored();
    if (before === "dark" || before === "light") root.dataset.theme = before;
    const button = el("button", { type: "button", id: "theme" }, "Dark");
    const show = () => button.setAttribute("aria-pressed", String(dark()));
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      stored(root.dataset.theme);
      show();
    });
    show();
    return button;
  }
  function summary() {
    const n = (test) => data.regions.filter(test).length;
    const pairs = [[data.regions.length, "regions"], [n((r) => r.status === "winner"), "with a winner"],
      [n((r) => r.status === "no winner"), "without a winner"],
      [data.regions.reduce((sum, r) => sum + tried(r), 0), "candidates tried"],
      [data.regions.reduce((sum, r) => sum + rounds(r).length, 0), "of them by agents"]];
    return el("dl", { class: "summary" }, pairs.map(([value, name]) => el("div", {}, el("dt", {}, name), el("dd", {}, fixed(value, 0)))));
  }
  function header() {
    document.getElementById("top").append(
      el("p", { class: "brand" }, `CudaForge · ${data.created}`), themeButton(),
      el("h1", {}, arrows(data.title)), el("p", { class: "subject" }, data.subject));
    document.getElementById("foot").append(command("This page was made by", data.command) || "",
      el("p", { class: "note" }, "It loads nothing from a network."));
  }
  const machine = () => section("machine-title", "Machine", facts(data.machine.map((f) => [f.name, f.text])),
    command("Check this machine", data.machine_command));

  function report(main) {
    data.regions.forEach((region, index) => { region.index = index; });
    const only = data.regions.length === 1;
    main.append(only ? "" : summary(), ...notes(data.notes));
    if (data.graphs.length || data.graphs_note) {
      main.append(section("graphs-title", "Graphs", timed(data.graphs), notes([data.graphs_note]),
        command("Forge and time in an empty cache", data.graphs_command)));
    }
    main.append(section("regions-title", "Regions", data.regions.length ? [
      notes([data.share_of && `Share: of ${data.share_of}`, data.headroom_note]), regionTable(),
    ] : notes(["There are none."]), command("Print the same", data.regions_command)));
    if (data.regions.length) {
      main.append(section("roofline-title", "Roofline", rooflinePlot(), command("Draw it again", data.command)));
      const places = data.regions.map(placeNode);
      main.append(section("lineage-title", "Lineage", notes(["Every kernel that was tried, by region."]), places));
      if (only) places[0].open = true;
    }
    main.append(machine());
    addEventListener("hashchange", openTarget);
    // A link to the place that is in the address already changes nothing there.
    document.addEventListener("click", (event) => {
      const link = event.target.closest && event.target.closest("a[href]");
      if (link && link.getAttribute("href") === location.hash) openTarget();
    });
    openTarget();
  }
  function benchmark(main) {
    main.append(...notes(data.notes), section("results-title", "Results",
      data.rows.length ? timed(data.rows) : notes(["There are none."]), command("Run it again", data.command)), machine());
  }

  header();
  (data.kind === "benchmark" ? benchmark : report)(document.getElementById("main"));
})();
