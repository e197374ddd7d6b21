"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { requests, denied, pieces, column } = data;
  const all = requests.length;
  const byId = (id) => document.getElementById(id);
  const plots = byId("plots"), slider = byId("at"), times = plots.querySelector(".times");
  const panels = [...plots.querySelectorAll(".panel")].map((panel, n) => ({
    title: panel.querySelector("h3").textContent,
    denied: denied[n],
    figures: panel.querySelector(".figures"),
    values: panel.querySelector(".values"),
    svg: panel.querySelector("svg"),
    path: (name) => panel.querySelector("path." + name),
  }));
  const WIDTH = 1000, HEIGHT = 200, LEAST = 3;
  const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
  const multiples = (steps, unit) => steps.map((n) => n * unit);
  // Lengths of time between two labels, in milliseconds.
  const STEPS = [].concat(
    ...[1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 10, 100].map((unit) => multiples([1, 2, 5], unit)),
    multiples([1, 2, 5, 10, 15, 30], SECOND), multiples([1, 2, 5, 10, 15, 30], MINUTE), multiples([1, 2, 3, 6, 12], HOUR),
    multiples([1, 2, 5, 10, 20, 50, 100, 200, 500, 1000], DAY));

  // The shown columns, the columns of each bar, and the bar at which the reader points.
  let from = 0, to = all, each = 1, pointed = null;

  const count = (n) => n.toLocaleString("en-US");
  const sum = (counts, a, b) => {
    let total = 0;
    for (let at = a; at < b; at++) total += counts[at];
    return total;
  };
  const share = (part, whole) => {
    if (part === 0 || part === whole) return part === 0 ? "0 %" : "100 %";
    const percent = (100 * part) / whole;
    return percent < 0.01 ? "<0.01 %" : Math.min(percent, 99.99).toFixed(2) + " %";
  };

  // A column's start in milliseconds since 1970. A column in a gap has the start of the next piece.
  const startOf = (at) => {
    for (const [start, first, columns] of pieces) {
      if (at < first) return data.start + start;
      if (at < first + columns) return data.start + start + (at - first) * column;
    }
    const [start, , columns] = pieces[pieces.length - 1];
    return data.start + start + columns * column;
  };
  const written = (ms) => {
    const text = new Date(ms).toISOString().replace("T", " ");
    if (column >= MINUTE) return text.slice(0, 16);
    if (column >= SECOND) return text.slice(0, 19);
    const below = column >= 1 ? "" : String(Math.floor((ms % 1) * 1000)).padStart(3, "0");
    return text.slice(0, 23) + below;
  };
  const label = (ms, step) => {
    const text = new Date(ms).toISOString();
    if (ms % DAY === 0) return text.slice(0, 10);
    if (step >= MINUTE) return text.slice(11, 16);
    return step >= SECOND ? text.slice(11, 19) : written(ms).slice(17);
  };
  const long = (ms) => {
    for (const [unit, name] of [[DAY, "day"], [HOUR, "hour"], [MINUTE, "minute"], [SECOND, "second"]]) {
      if (ms >= unit) {
        const n = Math.round((ms / unit) * 100) / 100;
        return n === 1 ? name : count(n) + " " + name + "s";
      }
    }
    return ms >= 1 ? count(ms) + " ms" : count(ms * 1000) + " µs";
  };

  const drawPanel = (panel, highest, ticks) => {
    const bars = Math.ceil((to - from) / each), step = WIDTH / bars;
    const height = (n) => (n === 0 ? 0 : Math.max((n * HEIGHT) / highest, LEAST));
    let admitted = "", refused = "";
    for (let bar = 0; bar < bars; bar++) {
      const a = from + bar * each, b = Math.min(a + each, to);
      const whole = sum(requests, a, b), no = sum(panel.denied, a, b);
      const left = (bar * step).toFixed(1), wide = step.toFixed(1);
      const middle = HEIGHT - height(whole - no);
      const top = Math.min(HEIGHT - height(whole), middle - (no > 0 ? LEAST : 0));
      if (middle < HEIGHT) admitted += `M${left} ${HEIGHT}V${middle.toFixed(1)}h${wide}V${HEIGHT}z`;
      if (no > 0) refused += `M${left} ${middle.toFixed(1)}V${top.toFixed(1)}h${wide}V${middle.toFixed(1)}z`;
    }
    panel.path("admitted").setAttribute("d", admitted);
    panel.path("denied").setAttribute("d", refused);
    panel.path("grid").setAttribute("d", ticks.map((n) => `M0 ${(HEIGHT - (n * HEIGHT) / highest).toFixed(1)}H${WIDTH}`).join(""));
    panel.values.replaceChildren(...ticks.map((n) => {
      const span = document.createElement("span");
      span.style.bottom = (n * 100) / highest + "%";
      span.textContent = count(n);
      return span;
    }));
    const x = (at) => Math.min(Math.max(((at - from) * WIDTH) / (to - from), 0), WIDTH).toFixed(1);
    panel.path("gap").setAttribute("d", pieces.slice(1).map(([, first], n) =>
      `M${x(pieces[n][1] + pieces[n][2])} 0H${x(first)}V${HEIGHT}H${x(pieces[n][1] + pieces[n][2])}z`).join(""));
  };

  const drawTimes = (width) => {
    const most = Math.max(2, Math.min(10, Math.floor(width / 75)));
    const shown = pieces.map(([start, first, columns]) => {
      const a = Math.max(from, first), b = Math.min(to, first + columns);
      return { a, begin: data.start + start + (a - first) * column, length: Math.max(0, b - a) * column };
    }).filter((piece) => piece.length > 0);
    const length = shown.reduce((total, piece) => total + piece.length, 0);
    const step = STEPS.find((step) => step >= column && length / step < most) || 1000 * DAY;
    const spans = [];
    for (const { a, begin, length } of shown) {
      for (let ms = Math.ceil(begin / step) * step; ms < begin + length && spans.length < 40; ms += step) {
        const span = document.createElement("span");
        span.style.left = ((a + (ms - begin) / column - from) * 100) / (to - from) + "%";
        span.textContent = label(ms, step);
        spans.push(span);
      }
    }
    times.classList.add("drawn");
    times.replaceChildren(...spans);
  };

  // The figures of the bar at which the reader points, or of all that is shown.
  const figures = () => {
    const a = pointed === null ? from : from + pointed * each;
    const b = pointed === null ? to : Math.min(a + each, to);
    const when = `${written(startOf(a))} to ${written(startOf(b - 1) + column)} UTC`;
    const whole = sum(requests, a, b);
    const parts = panels.map((panel) => {
      const no = sum(panel.denied, a, b);
      const text = `${count(whole - no)} admitted, ${count(no)} denied (${share(no, whole)})`;
      panel.figures.textContent = a === 0 && b === all ? text : `${when}: ${text}`;
      const step = (WIDTH * each) / (to - from);
      panel.path("mark").setAttribute("d", pointed === null ? "" : `M${pointed * step} 0h${step}V${HEIGHT}h-${step}z`);
      return `${panel.title}: ${text}`;
    });
    const all_ = `${when}. ${parts.join(". ")}`;
    slider.setAttribute("aria-valuetext", all_);
    return all_;
  };

  const draw = () => {
    const width = panels[0].svg.clientWidth || 600;
    // Bars of a round length, about as many as the width has room for.
    const least = (to - from) / Math.max(40, Math.min(300, Math.floor(width / 3)));
    const round = STEPS.find((step) => step >= least * column && step % column === 0);
    each = Math.max(1, round === undefined ? Math.ceil(least) : round / column);
    const bars = Math.ceil((to - from) / each);
    let highest = 1;
    for (let bar = 0; bar < bars; bar++) {
      highest = Math.max(highest, sum(requests, from + bar * each, Math.min(from + (bar + 1) * each, to)));
    }
    let step = 1;
    for (let n = 0; Math.floor(highest / step) > 4; n++) step = [1, 2, 5][n % 3] * 10 ** Math.floor(n / 3);
    const ticks = [];
    for (let tick = step; tick <= highest; tick += step) ticks.push(tick);
    panels.forEach((panel) => drawPanel(panel, highest, ticks));
    drawTimes(width);
    byId("unit").textContent = `Requests per ${long(each * column)}; each bar is this long.`;
    slider.max = bars - 1;
    byId("whole").disabled = byId("out").disabled = from === 0 && to === all;
    byId("in").disabled = to - from <= 2;
    byId("earlier").disabled = from === 0;
    byId("later").disabled = to === all;
    figures();
  };

  const show = (a, b) => {
    const length = Math.max(Math.min(2, all), Math.min(Math.round(b - a), all));
    from = Math.max(0, Math.min(Math.round(a), all - length));
    to = from + length;
    pointed = null;
    draw();
    byId("said").textContent = figures();
  };
  const zoom = (factor) => {
    const middle = pointed === null ? (from + to) / 2 : from + (pointed + 0.5) * each;
    const length = (to - from) * factor;
    show(middle - length / 2, middle + length / 2);
    slider.value = Math.floor((middle - from) / each);
  };
  const move = (part) => show(from + part * (to - from), to + part * (to - from));

  byId("in").addEventListener("click", () => zoom(0.5));
  byId("out").addEventListener("click", () => zoom(2));
  byId("earlier").addEventListener("click", () => move(-0.5));
  byId("later").addEventListener("click", () => move(0.5));
  byId("whole").addEventListener("click", () => show(0, all));
  slider.addEventListener("input", () => {
    pointed = Number(slider.value);
    figures();
  });
  slider.addEventListener("keydown", (event) => {
    const act = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: () => show(0, all) }[event.key];
    if (act && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      act();
    }
  });

  // Pointing, and dragging to zoom.
  let dragged = null;
  const barAt = (svg, event) => {
    const box = svg.getBoundingClientRect();
    const part = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 0.999999);
    return Math.floor((part * (to - from)) / each);
  };
  panels.forEach(({ svg }) => {
    svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      dragged = pointed = barAt(svg, event);
      svg.setPointerCapture(event.pointerId);
      figures();
    });
    svg.addEventListener("pointermove", (event) => {
      pointed = barAt(svg, event);
      slider.value = pointed;
      figures();
      if (dragged !== null && dragged !== pointed) {
        const step = (WIDTH * each) / (to - from), a = Math.min(dragged, pointed), b = Math.max(dragged, pointed) + 1;
        panels.forEach((panel) => panel.path("mark").setAttribute("d", `M${a * step} 0H${b * step}V${HEIGHT}H${a * step}z`));
      }
    });
    svg.addEventListener("pointerup", (event) => {
      const at = barAt(svg, event), begun = dragged;
      dragged = null;
      if (begun !== null && begun !== at) {
        show(from + Math.min(begun, at) * each, from + (Math.max(begun, at) + 1) * each);
      }
    });
    svg.addEventListener("pointercancel", () => { dragged = null; });
    svg.addEventListener("pointerleave", () => {
      if (dragged !== null) return;
      pointed = null;
      figures();
    });
    svg.addEventListener("dblclick", () => show(0, all));
  });

  window.addEventListener("resize", draw);
  byId("controls").hidden = false;
  plots.classList.add("zooms");
  draw();
})();
