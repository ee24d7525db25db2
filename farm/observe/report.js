"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const canvas = document.getElementById("timeline");
  const pen = canvas.getContext("2d");
  const details = document.getElementById("details");
  const tip = document.getElementById("tip");
  const AXIS = 26, TITLE = 17, BAR = 22, GAP = 5;

  // Colours that are told apart with any kind of colour blindness (Okabe and Ito); what went wrong has a pattern too.
  const STYLES = {
    COMPILED: ["#0072b2", "#fff", ""], FOUND: ["#56b4e9", "#000", "dots"], LOADED: ["#009e73", "#fff", ""],
    LOCAL: ["#e69f00", "#000", "rows"], FALLBACK: ["#9a9a9a", "#000", ""], FAILED: ["#d55e00", "#fff", "rising"],
    DIED: ["#cc79a7", "#000", "crossed"], TIMED_OUT: ["#cc79a7", "#000", "columns"],
    OUT_OF_MEMORY: ["#cc79a7", "#000", "rows"], REJECTED: ["#f0e442", "#000", "falling"],
    MOVED: ["#d9d9d9", "#000", "rising"], CANCELLED: ["#d9d9d9", "#000", "columns"],
  };
  const LINES = {
    rising: [[0, 8, 8, 0], [-2, 2, 2, -2], [6, 10, 10, 6]], falling: [[0, 0, 8, 8], [6, -2, 10, 2], [-2, 6, 2, 10]],
    crossed: [[0, 0, 8, 8], [0, 8, 8, 0]], columns: [[4, 0, 4, 8]], rows: [[0, 4, 8, 4]], dots: [[3, 4, 5, 4]],
  };

  const kindOf = span => data.kinds[span[1]];
  const end = span => span[2] + span[3];
  const lanes = data.lanes.map(([group, number]) => ({ group, number, spans: [], top: 0 }));
  data.spans.forEach((span, index) => lanes[span[0]].spans.push(index));
  let bottom = AXIS;
  for (const lane of lanes) {
    bottom += lane.number ? 0 : TITLE;
    lane.top = bottom;
    bottom += BAR + GAP;
  }
  const height = Math.max(bottom + 4, 80);
  const length = Math.max(data.length, 1e-6);
  const SHORTEST = Math.min(1e-5, length);
  let view = { from: 0, to: length }, chosen = -1, pointed = -1, width = 0, scale = 1, drawn = [], waits = false;
  let fills = {};

  function fillOf(kind) {
    if (!fills[kind]) {
      const [back, ink, pattern] = STYLES[kind];
      fills[kind] = back;
      if (pattern) {
        const tile = document.createElement("canvas");
        tile.width = tile.height = Math.round(8 * scale);
        const brush = tile.getContext("2d");
        brush.scale(tile.width / 8, tile.height / 8);
        brush.fillStyle = back;
        brush.fillRect(0, 0, 8, 8);
        brush.strokeStyle = ink === "#fff" ? "rgba(255,255,255,.65)" : "rgba(0,0,0,.5)";
        brush.lineWidth = pattern === "dots" ? 2 : 1.2;
        for (const [x1, y1, x2, y2] of LINES[pattern]) {
          brush.beginPath();
          brush.moveTo(x1, y1);
          brush.lineTo(x2, y2);
          brush.stroke();
        }
        fills[kind] = pen.createPattern(tile, "repeat");
        fills[kind].setTransform(new DOMMatrix().scale(8 / tile.width));
      }
    }
    return fills[kind];
  }

  const xOf = at => (at - view.from) / (view.to - view.from) * width;
  const timeOf = x => view.from + x / width * (view.to - view.from);

  function seconds(value) {
    const size = Math.abs(value);
    if (size >= 120) return Math.floor(value / 60) + " min " + (value % 60).toFixed(0) + " s";
    if (size >= 1) return value.toFixed(2).replace(/\.?0+$/, "") + " s";
    if (size >= 1e-3) return (value * 1e3).toFixed(1) + " ms";
    return size ? (value * 1e6).toFixed(0) + " µs" : "0 s";
  }

  function describe(index) {
    const span = data.spans[index], lane = lanes[span[0]];
    const first = data.names[span[4]] + "\n" + kindOf(span)[1] + " · " + lane.group +
      " · from " + seconds(span[2]) + ", for " + seconds(span[3]);
    return first + (span[5] === null ? "" : " · asked for " + seconds(span[5]) + " before") +
      (span[6] ? "\n" + span[6] : "");
  }

  function draw() {
    waits = false;
    const look = getComputedStyle(document.documentElement);
    const [back, text, dim, line] = ["--back", "--text", "--dim", "--line"].map(one => look.getPropertyValue(one));
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.fillStyle = back;
    pen.fillRect(0, 0, width, height);
    pen.font = "12px system-ui, 'DejaVu Sans', sans-serif";
    pen.textBaseline = "middle";
    drawAxis(dim, line);
    drawn = [];
    for (const lane of lanes) {
      if (!lane.number) {
        pen.fillStyle = text;
        pen.fillText(lane.group, 6, lane.top - TITLE / 2 + 1);
      }
      drawLane(lane, text);
    }
    for (const [index, style] of [[pointed, dim], [chosen, text]]) {
      const box = index < 0 ? null : drawn.find(one => one[4] === index);
      if (box) {
        pen.strokeStyle = style;
        pen.lineWidth = 2;
        pen.strokeRect(box[0] - 1, box[1] - 1, box[2] + 2, box[3] + 2);
      }
    }
    canvas.dataset.spans = data.spans.length;
    canvas.dataset.drawn = drawn.length;
    canvas.dataset.from = view.from;
    canvas.dataset.to = view.to;
    canvas.dataset.chosen = chosen;
  }

  function drawAxis(dim, line) {
    const step = [1, 2, 5, 10].map(one => one * 10 ** Math.floor(Math.log10((view.to - view.from) / (width / 90))))
      .find(one => one / (view.to - view.from) * width >= 80) || (view.to - view.from);
    pen.strokeStyle = line;
    pen.fillStyle = dim;
    pen.lineWidth = 1;
    for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) {
      const x = Math.round(xOf(at)) + .5;
      pen.beginPath();
      pen.moveTo(x, AXIS - 6);
      pen.lineTo(x, height);
      pen.stroke();
      if (x + 50 < width) pen.fillText(seconds(Math.abs(at) < step / 2 ? 0 : at), x + 3, AXIS / 2 - 2);
    }
  }

  function drawLane(lane) {
    for (const index of lane.spans) {
      const span = data.spans[index];
      if (end(span) < view.from || span[2] > view.to) continue;
      const kind = kindOf(span)[0];
      const left = Math.max(-2, xOf(span[2]));
      const wide = Math.max(2, Math.min(width + 2, xOf(end(span))) - left);
      const [top, high] = kind === "FALLBACK" ? [lane.top + 4, BAR - 8] : [lane.top, BAR];
      pen.fillStyle = fillOf(kind);
      pen.fillRect(left, top, wide, high);
      if (wide > 5) {
        pen.strokeStyle = "rgba(0,0,0,.45)";
        pen.lineWidth = 1;
        pen.strokeRect(left + .5, top + .5, wide - 1, high - 1);
      }
      if (wide > 36 && high > 15) writeIn(data.names[span[4]], STYLES[kind], Math.max(left, 0), top, wide + Math.min(left, 0));
      drawn.push([left, top, wide, high, index]);
    }
  }

  function writeIn(name, [back, ink, pattern], left, top, wide) {
    const room = Math.floor((wide - 10) / 6.6);
    if (room < 3) return;
    const short = name.length > room ? name.slice(0, room - 1) + "…" : name;
    if (pattern) {
      pen.fillStyle = back;
      pen.fillRect(left + 3, top + 3, Math.min(wide - 6, pen.measureText(short).width + 4), BAR - 6);
    }
    pen.fillStyle = ink;
    pen.fillText(short, left + 5, top + BAR / 2 + 1, wide - 8);
  }

  function later() {
    if (!waits) {
      waits = true;
      requestAnimationFrame(draw);
    }
  }

  function resize() {
    width = Math.max(50, canvas.parentElement.clientWidth);
    scale = Math.min(window.devicePixelRatio || 1, 8192 / height, 8192 / width);
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = height + "px";
    fills = {};
    draw();
  }

  function show(from, to) {
    const span = Math.min(length, Math.max(SHORTEST, to - from));
    const begin = Math.min(Math.max(0, from), length - span);
    view = { from: begin, to: begin + span };
    later();
  }

  function zoom(factor, about) {
    show(about - (about - view.from) * factor, about + (view.to - about) * factor);
  }

  const move = share => show(view.from + share * (view.to - view.from), view.to + share * (view.to - view.from));
  const middle = () => chosen >= 0 ? Math.min(view.to, Math.max(view.from, data.spans[chosen][2] + data.spans[chosen][3] / 2))
    : (view.from + view.to) / 2;

  function choose(index) {
    chosen = index;
    details.className = index < 0 ? "" : "chosen";
    details.textContent = index < 0 ? "Point at a span, or tap it, to see what it is." : describe(index);
    if (index >= 0) {
      const span = data.spans[index], room = view.to - view.from;
      if (span[2] < view.from || end(span) > view.to) {
        const wanted = Math.max(room, span[3] * 1.2), center = span[2] + span[3] / 2;
        show(center - wanted / 2, center + wanted / 2);
      }
    }
    later();
  }

  function at(x, y) {
    let best = -1, distance = 6;
    for (const [left, top, wide, high, index] of drawn) {
      if (y < top - 2 || y > top + high + 2) continue;
      const off = x < left ? left - x : Math.max(0, x - left - wide);
      if (off < distance) [best, distance] = [index, off];
      if (!off) break;
    }
    return best;
  }

  // ---- mouse and touch

  const pointers = new Map();
  let moved = 0;
  const place = event => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointerdown", event => {
    pointers.set(event.pointerId, place(event));
    canvas.setPointerCapture(event.pointerId);
    if (pointers.size === 1) moved = 0;
    tip.hidden = true;
  });
  canvas.addEventListener("pointermove", event => {
    const now = place(event), before = pointers.get(event.pointerId);
    if (!before) return point(event, now);
    const rest = [...pointers].filter(([id]) => id !== event.pointerId).map(([, where]) => where);
    const perPixel = (view.to - view.from) / width;
    moved += Math.abs(now[0] - before[0]) + Math.abs(now[1] - before[1]);
    if (rest.length) {
      const gap = Math.max(20, Math.abs(now[0] - rest[0][0])), gapBefore = Math.max(20, Math.abs(before[0] - rest[0][0]));
      zoom(gapBefore / gap, timeOf((now[0] + rest[0][0]) / 2));
    } else if (moved > 4) {
      show(view.from - (now[0] - before[0]) * perPixel, view.to - (now[0] - before[0]) * perPixel);
    }
    pointers.set(event.pointerId, now);
  });
  const release = event => {
    if (pointers.delete(event.pointerId) && event.type === "pointerup" && moved <= 4 && !pointers.size) {
      choose(at(...place(event)));
    }
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; pointed = -1; later(); });

  function point(event, [x, y]) {
    if (event.pointerType === "touch") return;
    pointed = at(x, y);
    tip.hidden = pointed < 0;
    if (pointed >= 0) {
      tip.textContent = describe(pointed);
      tip.style.whiteSpace = "pre-line";
      const room = canvas.parentElement;
      tip.style.left = Math.max(0, Math.min(x + 12, room.clientWidth - tip.offsetWidth - 4)) + "px";
      tip.style.top = Math.max(0, y + 18 + tip.offsetHeight > room.clientHeight ? y - tip.offsetHeight - 8 : y + 18) + "px";
    }
    later();
  }
  canvas.addEventListener("dblclick", event => zoom(.4, timeOf(place(event)[0])));
  canvas.addEventListener("wheel", event => {
    const sideways = event.shiftKey ? event.deltaX || event.deltaY : event.deltaX;
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(Math.max(-100, Math.min(100, event.deltaY)) / 200), timeOf(place(event)[0]));
    else if (Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY)) move(sideways / width);
    else return;
    event.preventDefault();
  }, { passive: false });

  // ---- keyboard and buttons

  function step(by) {
    if (chosen < 0) return choose(data.spans.findIndex(span => end(span) >= view.from));
    const lane = lanes[data.spans[chosen][0]].spans, next = lane[lane.indexOf(chosen) + by];
    if (next !== undefined) choose(next);
  }

  function hop(by) {
    if (chosen < 0) return step(1);
    const from = data.spans[chosen], lane = lanes[from[0] + by];
    if (!lane) return;
    const off = index => Math.abs(data.spans[index][2] + data.spans[index][3] / 2 - from[2] - from[3] / 2);
    choose(lane.spans.reduce((best, index) => off(index) < off(best) ? index : best));
  }

  const KEYS = {
    ArrowLeft: event => event.shiftKey ? move(-.2) : step(-1), ArrowRight: event => event.shiftKey ? move(.2) : step(1),
    ArrowUp: () => hop(-1), ArrowDown: () => hop(1), "+": () => zoom(.6, middle()), "=": () => zoom(.6, middle()),
    "-": () => zoom(1 / .6, middle()), "0": () => show(0, length), Home: () => show(0, length), Escape: () => choose(-1),
  };
  canvas.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(KEYS, event.key) || !data.spans.length) return;
    KEYS[event.key](event);
    event.preventDefault();
  });
  const BUTTONS = {
    earlier: () => move(-.3), later: () => move(.3), closer: () => zoom(.6, middle()), wider: () => zoom(1 / .6, middle()),
    whole: () => show(0, length),
  };
  for (const [id, action] of Object.entries(BUTTONS)) document.getElementById(id).addEventListener("click", action);

  // ---- legend and table

  const used = new Set(data.spans.map(span => span[1]));
  function legend() {
    const list = document.getElementById("legend");
    list.replaceChildren();
    data.kinds.forEach(([kind, text], number) => {
      if (!used.has(number)) return;
      const item = document.createElement("li"), swatch = document.createElement("canvas");
      swatch.width = 52;
      swatch.height = 28;
      const brush = swatch.getContext("2d");
      brush.scale(2, 2);
      brush.fillStyle = fillOf(kind);
      brush.fillRect(0, 0, 26, 14);
      item.append(swatch, text);
      list.append(item);
    });
  }
  document.getElementById("list").addEventListener("toggle", event => {
    const list = event.currentTarget;
    if (!list.open || list.querySelector("table")) return;
    const box = document.createElement("div"), table = document.createElement("table");
    box.className = "scroll";
    const row = (parts, tag) => {
      const line = document.createElement("tr");
      parts.forEach((part, number) => {
        const cell = document.createElement(tag);
        cell.textContent = part;
        if (number > 4) cell.className = "text";
        line.append(cell);
      });
      return line;
    };
    table.createTHead().append(row(["what", "from", "for", "waited", "where", "how"], "th"));
    const body = table.createTBody();
    for (const span of data.spans) {
      body.append(row([data.names[span[4]], seconds(span[2]), seconds(span[3]), span[5] === null ? "" : seconds(span[5]),
        lanes[span[0]].group, kindOf(span)[1] + (span[6] ? ": " + span[6] : "")], "td"));
    }
    box.append(table);
    list.append(box);
  });

  canvas.farm = { boxes: () => drawn, data };
  new ResizeObserver(resize).observe(canvas.parentElement);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", later);
  resize();
  legend();
})();
