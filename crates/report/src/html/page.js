"use strict";
(() => {
  const page = document.documentElement;
  const failures = [];
  addEventListener("error", (event) => { failures.push(event.message); page.dataset.errors = failures.length; });

  // --- figures as people read them -----------------------------------------------------------------------------------
  const short = (x) => (x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x.toFixed(2)).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
  const time = (ns) => ns >= 1e9 ? short(ns / 1e9) + " s" : ns >= 1e6 ? short(ns / 1e6) + " ms"
    : ns >= 1e3 ? short(ns / 1e3) + " µs" : Math.round(ns) + " ns";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  const size = (bytes) => {
    let unit = 0;
    while (bytes >= 1024 && unit < units.length - 1) { bytes /= 1024; unit++; }
    return (unit ? short(bytes) : bytes) + " " + units[unit];
  };

  // --- the tip that names what is under the pointer ------------------------------------------------------------------
  const tip = document.getElementById("tip");
  const say = (text, x, y) => {
    if (!text) { tip.hidden = true; return; }
    if (tip.textContent !== text) tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 4));
    const top = y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18;
    tip.style.left = left + "px";
    tip.style.top = Math.max(4, top) + "px";
  };
  document.addEventListener("pointerover", (event) => {
    const mark = event.target.closest("[data-tip]");
    if (mark) say(mark.dataset.tip, event.clientX, event.clientY);
    else if (!event.target.closest(".plot")) say("");
  });
  document.addEventListener("focusin", (event) => {
    const mark = event.target.closest("[data-tip]");
    if (mark) { const box = mark.getBoundingClientRect(); say(mark.dataset.tip, box.right, box.bottom); }
  });
  addEventListener("scroll", () => say(""), { passive: true });

  // --- tables that sort and filter -----------------------------------------------------------------------------------
  for (const table of document.querySelectorAll("table.rows")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => head.addEventListener("click", () => {
      const numeric = head.classList.contains("n");
      const was = head.getAttribute("aria-sort");
      const up = was ? was === "descending" : !numeric || head.textContent === "iteration";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => {
        const cell = row.cells[column];
        return numeric ? (cell.dataset.v === undefined ? NaN : +cell.dataset.v) : cell.textContent;
      };
      const order = (a, b) => {
        const [x, y] = [key(a), key(b)];
        if (numeric) return isNaN(x) ? 1 : isNaN(y) ? -1 : up ? x - y : y - x;
        return up ? x.localeCompare(y) : y.localeCompare(x);
      };
      table.tBodies[0].append(...[...table.tBodies[0].rows].sort(order));
    }));
  }
  for (const filter of document.querySelectorAll("input.filter")) {
    const rows = [...filter.closest("section").querySelectorAll("table.rows tbody tr")];
    const count = filter.closest("p").querySelector(".count");
    const apply = () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        shown += !row.hidden;
      }
      count.textContent = shown === rows.length ? rows.length + " rows" : shown + " of " + rows.length + " rows";
    };
    filter.addEventListener("input", apply);
    apply();
  }

  // --- timelines and memory maps -------------------------------------------------------------------------------------
  const colour = (name) => getComputedStyle(page).getPropertyValue(name).trim();
  const roles = ["weight", "gradient", "state", "input", "activation", "workspace", "other"];
  const ROW = 20, GAP = 6, AXIS = 24;

  // Round numbers between two, at most so many.
  const ticks = (from, to, count, base) => {
    const rough = (to - from) / Math.max(1, count);
    let step = Math.pow(base, Math.floor(Math.log(rough) / Math.log(base)));
    const factors = base === 2 ? [1, 2] : [1, 2, 5, 10];
    step *= factors.find((f) => f * step >= rough) || base;
    const all = [];
    for (let at = Math.ceil(from / step) * step; at <= to && all.length < 50; at += step) all.push(at);
    return all;
  };

  class Run {
    constructor(box, number) {
      this.box = box;
      this.data = JSON.parse(document.getElementById("data-" + number).textContent);
      this.length = this.data.window[1] - this.data.window[0];
      this.view = this.data.view.slice();
      this.plots = [...box.querySelectorAll(".plot")].map((plot) => new Plot(this, plot));
      this.range = box.querySelector(".range");
      this.range.addEventListener("change", () => this.show(...this.chosen()));
      for (const button of box.querySelectorAll("[data-zoom]")) {
        button.addEventListener("click", () => +button.dataset.zoom ? this.zoom(+button.dataset.zoom) : this.reset());
      }
      this.drawn = false;
    }
    chosen() {
      const iteration = this.data.iterations[+this.range.value];
      return iteration ? [iteration[1], iteration[2]] : [0, this.length];
    }
    reset() { this.show(...this.chosen()); }
    zoom(factor, at = (this.view[0] + this.view[1]) / 2) {
      const [from, to] = this.view;
      this.show(at - (at - from) * factor, at + (to - at) * factor);
    }
    show(from, to) {
      const least = Math.min(100, this.length);
      const width = Math.max(least, Math.min(to - from, this.length));
      from = Math.max(0, Math.min(from, this.length - width));
      this.view = [from, from + width];
      this.draw();
    }
    draw() {
      for (const plot of this.plots) plot.draw();
      this.drawn = true;
    }
    cross(x) { for (const plot of this.plots) plot.cross(x); }
  }

  class Plot {
    constructor(run, box) {
      this.run = run;
      this.box = box;
      this.canvas = box.querySelector("canvas");
      const chart = box.dataset.chart;
      this.map = chart.startsWith("map-") ? run.data.maps[+chart.slice(4)] : null;
      this.line = box.appendChild(document.createElement("div"));
      this.line.className = "cross";
      this.line.hidden = true;
      this.choice = box.appendChild(document.createElement("div"));
      this.choice.className = "choice";
      this.choice.hidden = true;
      this.listen();
    }

    // Where the plot is inside its canvas.
    frame() {
      const width = this.box.clientWidth, narrow = width < 560;
      const left = narrow ? 58 : 78;
      let height = narrow ? 190 : 270;
      if (!this.map) height = this.run.data.lanes.reduce((sum, lane) => sum + lane.rows * ROW + GAP, 0);
      return { left, top: 4, width: Math.max(10, width - left - 8), height, whole: width };
    }
    across(time) {
      const [from, to] = this.run.view;
      return this.f.left + (time - from) / (to - from) * this.f.width;
    }
    time(x) {
      const [from, to] = this.run.view;
      return from + (x - this.f.left) / this.f.width * (to - from);
    }

    draw() {
      const f = this.f = this.frame();
      if (!f.whole) return;
      const ratio = Math.min(devicePixelRatio || 1, 3), height = f.top + f.height + AXIS;
      this.canvas.width = Math.round(f.whole * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.canvas.style.height = height + "px";
      const c = this.c = this.canvas.getContext("2d");
      c.scale(ratio, ratio);
      c.font = "12px system-ui, sans-serif";
      c.textBaseline = "middle";
      this.ink = { soft: colour("--soft"), line: colour("--line"), free: colour("--free"), bg: colour("--bg"), ink: colour("--ink") };
      const drawn = this.map ? this.drawMap() : this.drawLanes();
      this.drawTimes();
      this.box.dataset.drawn = drawn;
    }

    drawTimes() {
      const { c, f } = this, [from, to] = this.run.view, bottom = f.top + f.height;
      c.textAlign = "center";
      // Times count from the start of the iteration that is shown.
      const start = this.run.data.iterations.filter((i) => i[1] <= from + 1).pop();
      const zero = start && start[2] >= to - 1 ? start[1] : 0;
      const all = ticks(from - zero, to - zero, f.width / 85, 10);
      const far = Math.max(Math.abs(from - zero), to - zero);
      const [unit, name] = far >= 2e9 ? [1e9, "s"] : far >= 2e6 ? [1e6, "ms"] : far >= 2e3 ? [1e3, "µs"] : [1, "ns"];
      const step = all.length > 1 ? (all[1] - all[0]) / unit : 1;
      const digits = Math.max(0, Math.min(6, -Math.floor(Math.log10(step) + 1e-9)));
      for (const tick of all) {
        const x = this.across(tick + zero);
        c.strokeStyle = this.ink.line;
        c.beginPath(); c.moveTo(x + .5, bottom); c.lineTo(x + .5, bottom + 4); c.stroke();
        c.fillStyle = this.ink.soft;
        const text = (tick / unit).toFixed(digits) + " " + name;
        c.fillText(text, Math.min(x, f.whole - c.measureText(text).width / 2), bottom + 14);
      }
      for (const [, began, ended] of this.run.data.iterations) {
        for (const edge of [began, ended]) {
          if (edge <= from || edge >= to) continue;
          c.strokeStyle = this.ink.soft;
          c.setLineDash([2, 3]);
          c.beginPath(); c.moveTo(this.across(edge), f.top); c.lineTo(this.across(edge), bottom); c.stroke();
          c.setLineDash([]);
        }
      }
    }

    // Calls back for every mark that is in view, with where it is across.
    visible(list, stride, use) {
      const [from, to] = this.run.view, f = this.f, scale = f.width / (to - from);
      let count = 0;
      for (let at = 0; at < list.length; at += stride) {
        const began = list[at], ended = began + list[at + 1];
        if (began >= to || ended <= from) continue;
        const left = f.left + (Math.max(began, from) - from) * scale;
        const right = f.left + (Math.min(ended, to) - from) * scale;
        use(at, left, Math.max(right - left, .7));
        count++;
      }
      return count;
    }

    drawLanes() {
      const { c, f } = this;
      let y = f.top, drawn = 0;
      this.tops = [];
      for (const lane of this.run.data.lanes) {
        const height = lane.rows * ROW;
        this.tops.push(y);
        c.fillStyle = this.ink.free;
        c.fillRect(f.left, y, f.width, height);
        c.fillStyle = this.ink.soft;
        c.textAlign = "right";
        c.fillText(lane.title, f.left - 8, y + ROW / 2, f.left - 10);
        const paint = lane.kinds.map((kind) => colour(kind[1]));
        drawn += this.visible(lane.bars, 7, (at, x, width) => {
          c.fillStyle = paint[lane.bars[at + 3]];
          const gap = width > 4 ? .6 : 0;
          c.fillRect(x, y + lane.bars[at + 2] * ROW + 1, width - gap, ROW - 2);
        });
        y += height + GAP;
      }
      return drawn;
    }

    drawMap() {
      const { c, f, map } = this, bottom = f.top + f.height;
      // All of the tier, unless most of it is never touched.
      this.high = Math.max(1, map.top < map.capacity / 2 ? map.top * 1.02 : map.capacity);
      const scale = f.height / this.high;
      c.fillStyle = this.ink.free;
      c.fillRect(f.left, f.top, f.width, f.height);
      const paint = roles.map((role) => colour("--" + role));
      const drawn = this.visible(map.rects, 7, (at, x, width) => {
        const height = Math.max(map.rects[at + 3] * scale, .6);
        const y = bottom - map.rects[at + 2] * scale - height;
        c.fillStyle = paint[map.rects[at + 4]];
        const gap = width > 3 && height > 3 ? .6 : 0;
        c.fillRect(x, y, width - gap, height - gap);
      });
      c.strokeStyle = this.ink.ink;
      c.setLineDash([4, 3]);
      this.visible(map.zones, 5, (at, x, width) => {
        const height = map.zones[at + 3] * scale;
        c.strokeRect(x, bottom - map.zones[at + 2] * scale - height, width, height);
      });
      c.setLineDash([]);
      c.textAlign = "right";
      for (const tick of ticks(0, this.high, f.height / 56, 2)) {
        const y = bottom - tick * scale;
        c.strokeStyle = this.ink.line;
        c.beginPath(); c.moveTo(f.left - 4, y); c.lineTo(f.left, y); c.stroke();
        c.fillStyle = this.ink.soft;
        c.fillText(size(tick), f.left - 8, Math.max(y, f.top + 6), f.left - 10);
      }
      return drawn;
    }

    // What is at a point of the canvas, in words.
    find(x, y) {
      const { f, map } = this, names = this.run.data.names, when = this.time(x), slack = (this.time(1) - this.time(0)) * 2;
      if (x < f.left || x > f.left + f.width || y < f.top || y > f.top + f.height) return "";
      const more = (count) => count > 1 ? " and " + (count - 1) + " more" : "";
      const from = (began) => {
        const i = this.run.data.iterations.find((i) => i[1] <= began && began < i[2]);
        return i ? time(began - i[1]) + " into iteration " + i[0] : time(began + this.run.data.window[0]);
      };
      if (map) {
        const address = (f.top + f.height - y) / f.height * this.high, off = this.high / f.height;
        let best = -1, near = Infinity;
        for (let at = 0; at < map.rects.length; at += 7) {
          const [began, long, offset, bytes] = map.rects.slice(at, at + 4);
          if (when < began - slack || when > began + long + slack || address < offset - off || address > offset + bytes + off) continue;
          const away = Math.max(0, began - when, when - began - long) / slack + Math.max(0, offset - address, address - offset - bytes) / off;
          if (away <= near) { near = away; best = at; }
        }
        if (best < 0) return "free\n" + size(Math.round(address)) + " into " + map.tier;
        const [began, long, offset, bytes, role, name, count] = map.rects.slice(best, best + 7);
        const end = began + long >= this.run.length ? " to the end" : " for " + time(long);
        let text = names[name] + more(count) + "\n" + roles[role] + ", " + size(bytes) + " at " + size(offset) + " of " + map.tier
          + "\nfrom " + from(began) + end;
        for (let at = 0; at < map.zones.length; at += 5) {
          const z = map.zones.slice(at, at + 5);
          if (when >= z[0] && when < z[0] + z[1] && address >= z[2] && address < z[2] + z[3]) text += "\nin zone " + names[z[4]];
        }
        return text;
      }
      const number = this.run.data.lanes.findIndex((lane, at) => y >= this.tops[at] && y < this.tops[at] + lane.rows * ROW);
      if (number < 0) return "";
      const lane = this.run.data.lanes[number], row = Math.floor((y - this.tops[number]) / ROW);
      let best = -1, near = Infinity;
      for (let at = 0; at < lane.bars.length; at += 7) {
        const began = lane.bars[at], ended = began + lane.bars[at + 1];
        if (lane.bars[at + 2] !== row || when < began - slack || when > ended + slack) continue;
        const away = Math.max(0, began - when, when - ended);
        if (away <= near) { near = away; best = at; }
      }
      if (best < 0) return "";
      const [began, long, , kind, name, count, bytes] = lane.bars.slice(best, best + 7);
      const what = lane.what === "kernel" || lane.what === "stall" ? lane.kinds[kind][0] : lane.what;
      const rate = bytes && long ? ", " + size(bytes) + " at " + short(bytes / long) + " GB/s" : "";
      return names[name] + more(count) + "\n" + what + ", " + time(long) + rate + "\nfrom " + from(began);
    }

    cross(x) {
      this.line.hidden = x === null;
      if (x !== null) this.line.style.left = x + "px";
    }

    listen() {
      const { box, run } = this;
      let start = null, panned = null;
      const place = (event) => { const r = box.getBoundingClientRect(); return [event.clientX - r.left, event.clientY - r.top]; };
      const inside = (x) => Math.max(this.f.left, Math.min(x, this.f.left + this.f.width));
      box.addEventListener("pointerdown", (event) => {
        if (event.button) return;
        const [x] = place(event);
        if (event.pointerType === "touch") panned = { x, view: run.view.slice() };
        else { start = inside(x); box.setPointerCapture(event.pointerId); }
      });
      box.addEventListener("pointermove", (event) => {
        const [x, y] = place(event);
        if (panned) {
          const moved = (panned.x - x) / this.f.width * (panned.view[1] - panned.view[0]);
          if (Math.abs(panned.x - x) > 6) run.show(panned.view[0] + moved, panned.view[1] + moved);
          return;
        }
        run.cross(x >= this.f.left && x <= this.f.left + this.f.width ? x : null);
        if (start !== null) {
          const [a, b] = [start, inside(x)].sort((p, q) => p - q);
          this.choice.hidden = b - a < 4;
          this.choice.style.left = a + "px";
          this.choice.style.width = b - a + "px";
        }
        say(this.find(x, y), event.clientX, event.clientY);
      });
      const drop = (event) => {
        const [x, y] = place(event);
        if (panned) {
          if (Math.abs(panned.x - x) <= 6) say(this.find(x, y), event.clientX, event.clientY);
          panned = null;
          return;
        }
        if (start === null) return;
        const [a, b] = [start, inside(x)].sort((p, q) => p - q);
        start = null;
        this.choice.hidden = true;
        if (b - a >= 4) run.show(this.time(a), this.time(b));
      };
      box.addEventListener("pointerup", drop);
      box.addEventListener("pointercancel", () => { start = panned = null; this.choice.hidden = true; });
      box.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") { run.cross(null); say(""); } });
      box.addEventListener("dblclick", () => run.reset());
      box.addEventListener("wheel", (event) => {
        if (!event.ctrlKey) return;
        event.preventDefault();
        run.zoom(event.deltaY > 0 ? 1.25 : .8, this.time(place(event)[0]));
      }, { passive: false });
    }
  }

  const boxes = [...document.querySelectorAll("details.run")];
  if (location.hash === "#all") for (const box of document.querySelectorAll("details")) box.open = true;
  const runs = new Map();
  const open = (box) => {
    if (!box.open) return;
    if (!runs.has(box)) runs.set(box, new Run(box, boxes.indexOf(box)));
    runs.get(box).draw();
  };
  for (const box of boxes) { open(box); box.addEventListener("toggle", (event) => { if (event.target === box) open(box); }); }
  const redraw = () => { for (const run of runs.values()) if (run.box.open) run.draw(); };
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redraw(); } });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  page.dataset.errors = failures.length;
  page.dataset.ready = Math.round(performance.now());
})();
