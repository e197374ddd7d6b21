"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  // Points of the chart; the time between two drawings if the reader wants little motion, before another attempt, and before the
  // server is told again that this page reads.
  const POINTS = 120, STILL = 10000, SOON = 1000, AGAIN = 5000, READS = 3000;
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const count = (n) => Number(n).toLocaleString("en-US");
  const rate = (n) => (n > 0 && n < 0.1 ? "<0.1" : n >= 100 ? count(Math.round(n)) : (Math.round(n * 10) / 10).toLocaleString("en-US"));

  // Texts of clients and of files only become text nodes.
  const make = (tag, text, kind) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };
  const say = (element, text) => {
    if (element.textContent !== text) element.textContent = text;
  };
  // A foreign text keeps its direction of writing to itself.
  const foreign = (text) => make("bdi", text);

  // A table whose rows have names. A narrow page shows each row as a list, so each cell has its column's name, and the
  // roles, which such a layout would hide.
  const tableOf = (table, columns, numbers) => {
    const numeric = (at) => (numbers.includes(at) ? "n" : "");
    const cell = (tag, role, text, at) => {
      const made = make(tag, text, numeric(at));
      made.setAttribute("role", role);
      return made;
    };
    const head = table.createTHead(), body = table.createTBody();
    const top = head.insertRow();
    for (const part of [head, body]) part.setAttribute("role", "rowgroup");
    top.setAttribute("role", "row");
    top.append(...columns.map((name, at) => {
      const made = cell("th", "columnheader", name, at);
      made.scope = "col";
      return made;
    }));
    const rows = new Map();
    const rowOf = (name) => {
      if (!rows.has(name)) {
        const row = make("tr");
        row.setAttribute("role", "row");
        row.append(...columns.map((column, at) => {
          const made = at === 0 ? cell("th", "rowheader", "", at) : cell("td", "cell", "", at);
          if (at === 0) made.scope = "row";
          made.dataset.name = column;
          return made;
        }));
        rows.set(name, row);
      }
      return rows.get(name);
    };
    // Shows these rows: each has a name, and a text or nodes for each column. Cells that are the same stay as they are.
    const show = (list, empty) => {
      const wanted = list.map(([name, cells]) => {
        const row = rowOf(name);
        cells.forEach((content, at) => {
          const at_ = row.cells[at];
          if (Array.isArray(content)) {
            if (at_.textContent !== content.map((node) => node.textContent).join("")) at_.replaceChildren(...content);
          } else say(at_, content);
        });
        return row;
      });
      const names = new Set(list.map(([name]) => name));
      for (const name of rows.keys()) if (!names.has(name)) rows.delete(name);
      if (wanted.length === 0) {
        const row = make("tr"), none = make("td", empty, "empty");
        none.colSpan = columns.length;
        row.append(none);
        wanted.push(row);
      }
      const same = wanted.length === body.rows.length && wanted.every((row, at) => row === body.rows[at]);
      if (!same) body.replaceChildren(...wanted);
    };
    return show;
  };

  const showRules = tableOf(byId("figures"),
    ["Rule", "Limit", "Requests", "per second", "Denied", "denied per second", "Dry run", "Near", "Over"], [2, 3, 4, 5, 6, 7, 8]);
  const showDenied = tableOf(byId("denied"), ["Key", "Rule", "Denials"], [2]);
  const showNear = tableOf(byId("near"), ["Key", "Rule", "Requests"], [2]);
  const showServers = tableOf(byId("servers"),
    ["Server", "Breaker", "Evicts keys", "Calls", "Answered", "Failed", "Breaker opened", "Decided without it"], [3, 4, 5, 6, 7]);

  // What the server said so far, and the figures of the event before.
  let all = {}, before = null, points = [], drawn = 0;

  const merge = (event) => {
    for (const [name, value] of Object.entries(event)) {
      const kept = all[name];
      if (value === null || typeof value !== "object" || Array.isArray(value) || kept === undefined) {
        all[name] = value;
        continue;
      }
      for (const [member, now] of Object.entries(value)) {
        // Null is a value, too: of a rule that is gone, and of a load without an error.
        if (now === null && name !== "state") delete kept[member];
        else kept[member] = now;
      }
    }
  };

  const draw = () => {
    if (calm.matches && performance.now() - drawn < STILL) return;
    drawn = performance.now();
    const highest = Math.max(1, ...points.map(([whole]) => whole));
    const height = (n) => (n === 0 ? 0 : Math.max((n * 40) / highest, 0.6));
    const bars = (from, to) => points.map((point, at) => {
      const bottom = 40 - height(from(point)), top = Math.min(bottom, 40 - height(to(point)));
      const x = POINTS - points.length + at;
      return bottom > top ? `M${x} ${bottom.toFixed(2)}V${top.toFixed(2)}h.9V${bottom.toFixed(2)}z` : "";
    }).join("");
    const path = (kind, from, to) => document.querySelector(".plot ." + kind).setAttribute("d", bars(from, to));
    path("admitted", () => 0, ([whole, no]) => whole - no);
    path("denied", ([whole, no]) => whole - no, ([whole]) => whole);
    say(byId("highest"), rate(highest));
  };

  const showWhole = (state, seconds) => {
    const old = before && before.state;
    const since = (name) => (old && seconds > 0 ? Math.max(0, state[name] - old[name]) / seconds : 0);
    const [whole, no] = [since("requests"), since("over_limit")];
    if (old) points = [...points, [whole, Math.min(no, whole)]].slice(-POINTS);
    say(byId("rate"), `${rate(whole)} answers per second, ${rate(no)} of them over a limit`);
    draw();
    const loaded = state.last_load === null ? "never" : new Date(state.last_load * 1000).toISOString().slice(0, 19).replace("T", " ") + " UTC";
    const pairs = [
      ["Answers", count(state.requests)], ["Over a limit", count(state.over_limit)], ["Over a limit under --shadow", count(state.shadow_denied)],
      ["Errors", count(state.errors)], ["Late answers", count(state.late)], ["Waiting for an answer", count(state.in_flight)],
      ["Of an unknown domain", count(state.unknown_domains)], ["Loads of rules", count(state.loads)],
      ["Refused loads", count(state.failed_loads)], ["Last load", loaded],
    ];
    if (state.holds !== null) pairs.push(["Holds and requests in progress", count(state.holds)]);
    const list = byId("whole");
    while (list.children.length < pairs.length) {
      const pair = make("div");
      pair.append(make("dt"), make("dd"));
      list.append(pair);
    }
    while (list.children.length > pairs.length) list.lastChild.remove();
    pairs.forEach(([name, value], at) => {
      say(list.children[at].firstChild, name);
      say(list.children[at].lastChild, value);
    });
    say(byId("about"), `Version ${state.version}, ${state.serving ? "serving" : "not serving"}, ${count(state.rules)} rule${state.rules === 1 ? "" : "s"} in force`);
    byId("problem").hidden = state.last_error === null;
    if (state.last_error !== null) say(document.querySelector("#problem pre"), state.last_error);
  };

  const showAll = (event) => {
    const seconds = before ? (event.at - before.at) / 1000 : 0;
    merge(event);
    showWhole(all.state, seconds);
    const { shown, found } = all.order;
    showRules(shown.map((id) => {
      const [name, path, limit, how, mode, place] = all.rules[id], now = all.figures[id];
      // After a load, the same place may have another rule.
      const old = before && !(event.rules && id in event.rules) && before.figures[id];
      const since = (at) => rate(old && seconds > 0 ? Math.max(0, now[at] - old[at]) / seconds : 0);
      const small = [...(path === name ? [] : [path]), place, ...(mode ? [mode] : [])];
      return [String(id), [
        [foreign(name), ...small.map((text) => make("small", text))],
        [make("span", limit), make("small", how)],
        count(now[0]), since(0), count(now[1]), since(1), count(now[2]), count(now[3]), count(now[4]),
      ]];
    }), "No rule");
    say(byId("found"), found === shown.length ? `${count(found)} shown` : `${count(shown.length)} of ${count(found)} shown`);
    const keys = (list) => list.map(([rule, key, n]) => [rule + "\n" + key, [[foreign(key || "(all together)")], [foreign(rule)], count(n)]]);
    showDenied(keys(all.denied), "No key was denied");
    showNear(keys(all.near), "No key is near a limit");
    const servers = Object.entries(all.servers);
    byId("redis").hidden = servers.length === 0;
    say(byId("outage"), all.state.redis_problem || "");
    showServers(servers.map(([name, [state, calls, answered, failed, errors, opened, without, evicts]]) => [name, [
      [foreign(name || "Redis")], state, evicts ? "yes" : "no", count(calls), count(answered),
      [make("span", count(failed)), ...errors.map(([kind, n]) => make("small", `${kind} ${count(n)}`))], count(opened), count(without),
    ]]), "None");
    const domains = [...new Set(shown.map((id) => all.rules[id][6]))], list = byId("domains");
    if (domains.join("\n") !== [...list.children].map((option) => option.value).join("\n")) {
      list.replaceChildren(...domains.map((domain) => Object.assign(make("option"), { value: domain })));
    }
    if (byId("domain").value === "" && domains.length === 1 && document.activeElement !== byId("domain")) byId("domain").value = domains[0];
    before = { at: event.at, state: { ...all.state }, figures: { ...all.figures } };
    document.body.dataset.events = Number(document.body.dataset.events || 0) + 1;
  };

  // The connections in the order of their beginning. One ends when a later one is there, so the keys near a limit are
  // counted all the time.
  const sources = new Set();
  let again = 0, paused = false;
  const status = (text, kind) => {
    say(byId("status"), text);
    byId("status").className = kind;
  };
  const endBefore = (own) => {
    for (const source of sources) {
      if (source === own) return;
      source.close();
      sources.delete(source);
    }
  };
  const stop = () => {
    clearTimeout(again);
    endBefore(null);
  };
  const start = () => {
    clearTimeout(again);
    if (paused || document.hidden) return;
    const own = new EventSource("live?filter=" + encodeURIComponent(byId("filter").value));
    let wait = AGAIN;
    sources.add(own);
    own.onopen = () => {
      endBefore(own);
      wait = SOON;
      // The first event has all.
      [all, before] = [{}, null];
      status("Live", "live");
    };
    own.onmessage = (message) => showAll(JSON.parse(message.data));
    own.onerror = () => {
      endBefore(own);
      own.close();
      sources.delete(own);
      if (sources.size > 0) return;
      status("No connection. The server is away, or has no room for another page. Trying again.", "away");
      again = setTimeout(start, wait);
    };
  };

  setInterval(() => {
    if (sources.size > 0 && all.page) fetch("reads?page=" + all.page).catch(() => {});
  }, READS);

  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : start()));
  byId("pause").addEventListener("click", () => {
    paused = !paused;
    say(byId("pause"), paused ? "Continue" : "Pause");
    if (paused) {
      stop();
      status("Paused", "");
    } else start();
  });
  let typed = 0;
  byId("filter").addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(start, 300);
  });

  const showBecause = tableOf(byId("because"), ["Rule", "Applies", "Limit", "Counter", "Verdict", "Remaining", "Reset"], [5, 6]);
  byId("ask").addEventListener("submit", async (event) => {
    event.preventDefault();
    const query = new URLSearchParams({ domain: byId("domain").value, tier: byId("tier").value, cost: byId("cost").value });
    for (const line of byId("descriptors").value.split("\n")) if (line.trim() !== "") query.append("descriptor", line);
    byId("because").hidden = true;
    try {
      const response = await fetch("why?" + query, { headers: { accept: "application/json" } });
      if (!response.ok) {
        say(byId("answer"), (await response.text()).trim());
        return;
      }
      const { table, others } = await response.json();
      const several = table.rows.some((row) => row[0] !== "1");
      showBecause(table.rows.map(([descriptor, rule, applies, why, limit, counter, verdict, remaining, reset, place], at) => [String(at), [
        [foreign(rule), make("small", several ? `${place}, for descriptor ${descriptor}` : place)],
        [make("span", applies), make("small", why)], limit, counter && [foreign(counter)], verdict, remaining, reset,
      ]]), "No rule");
      byId("because").hidden = table.rows.length === 0;
      const applying = table.rows.filter((row) => row[2] === "yes").length;
      say(byId("answer"), `The request would be ${table.answer}. Rules that apply: ${applying}. Others that do not match: ${count(others)}.`);
    } catch {
      say(byId("answer"), "The server does not answer.");
    }
  });
  start();
})();
