/* The page of two recordings: headline numbers, curves, what changed line by line, a differential flame graph. */
"use strict";

const signed = (bytes) => (bytes === 0 ? "0" : `${bytes > 0 ? "+" : ""}${cuptimem.size(bytes)}`);
const KINDS = { added: "added", removed: "removed", grew: "grew", shrank: "shrank", moved: "moved", same: "same" };

cuptimem.data().then((data) => {
    if (document.getElementById("app")) new DiffPage(data);
});

class DiffPage {
    constructor(data) {
        this.data = data;
        this.stacks = new Stacks(data.stacks);
        const changed = (d) => d.sections.some((s) => s.changes.some((c) => c[1] !== c[2]));
        const first = data.devices.find((d) => d.device === data.named) ?? data.devices.find(changed) ?? data.devices[0];
        this.device = first.device;
        this.what = "peak";
        this.over = first.runs.every((run) => run.step.length > 1) ? "step" : "time";
        this.equal = false;
        this.width = 1;
        this.inverted = false;
        this.term = "";
        document.getElementById("app").hidden = false;
        document.getElementById("static").classList.add("replaced");
        this.flame = new Flame({
            host: document.getElementById("chart"),
            trail: document.getElementById("trail"),
            said: document.getElementById("said"),
            value: (node) => node.bytes[this.width],
            colour: (node) => changeColour(...node.bytes),
            tip: (node, root) => this.tip(node, root),
            describe: (node) => this.describe(node),
        });
        this.controls();
        this.show();
        matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.curves());
        new ResizeObserver(() => {
            const width = document.getElementById("curves").clientWidth;
            if (this.plot && width && width !== this.plot.width) this.plot.setSize({ width, height: 240 });
        }).observe(document.getElementById("curves"));
        document.documentElement.dataset.ready = "true";
    }

    here() {
        return this.data.devices.find((d) => d.device === this.device);
    }

    controls() {
        const { element } = cuptimem, { devices } = this.data, bar = document.getElementById("bar");
        if (devices.length > 1) {
            const select = element("select", { id: "device", "aria-label": "Device" });
            for (const { device } of devices) select.append(element("option", { value: device }, device));
            select.value = this.device;
            select.addEventListener("change", () => {
                this.device = select.value;
                this.show();
            });
            bar.append(element("label", {}, "Device ", select));
        }
        const filter = element("input", { type: "search", id: "filter", placeholder: "Filter lines", "aria-label": "Filter lines" });
        filter.addEventListener("input", () => {
            this.term = filter.value.trim().toLowerCase();
            this.changes();
            this.flame.search(filter.value);
        });
        const names = new Map(devices.flatMap((device) => device.sections.map(({ key, title }) => [key, title.toLowerCase()])));
        const what = choice("what", "Which bytes", [...names], "peak", (value) => {
            this.what = value;
            this.changes();
            this.draw();
        });
        const equal = element("input", { type: "checkbox", id: "equal" });
        equal.addEventListener("change", () => {
            this.equal = equal.checked;
            this.changes();
        });
        document.getElementById("changes-bar").append(what, element("label", { class: "check" }, equal, " equal lines, too"), element("span", { class: "gap" }), filter);
        document.getElementById("flame-bar").append(
            choice("width", "Width", [["1", "width: after"], ["0", "width: before"]], "1", (value) => {
                this.width = Number(value);
                this.draw();
            }),
            choice("direction", "Direction", [["in", "callers first"], ["out", "allocating line first"]], "in", (value) => {
                this.inverted = value === "out";
                this.draw();
            }),
        );
        document.getElementById("scale").append("less", element("i"), "more");
    }

    show() {
        this.cards();
        this.curves();
        this.changes();
        this.draw();
    }

    /** Bytes for each step where the section is about steps, else the bytes. */
    perStep(section, pair) {
        return pair.map((bytes, i) => Math.round(bytes / Math.max(1, section.steps[i])));
    }

    cards() {
        const { element, size } = cuptimem;
        document.getElementById("cards").replaceChildren(
            ...this.here().sections.map((section) => {
                const [was, is] = this.perStep(section, section.bytes), more = is - was;
                const percent = was && more ? ` (${more > 0 ? "+" : ""}${((100 * more) / was).toFixed(0)} %)` : "";
                return element("div", { class: "card", "data-what": section.key },
                    element("span", { class: "faint" }, section.title), element("b", {}, `${size(was)} → ${size(is)}`),
                    element("span", { class: more > 0 ? "up" : more < 0 ? "down" : "faint" }, more ? `${signed(more)}${percent}` : "unchanged"),
                    ...(section.key === "stepped" ? [element("div", { class: "faint" }, `${plural(section.steps[0], "step")} before, ${section.steps[1]} after`)] : []));
            }),
        );
    }

    curves() {
        const { size } = cuptimem, host = document.getElementById("curves"), { runs } = this.here();
        const steps = runs.some((run) => run.step.length);
        const title = document.getElementById("chart-title");
        title.replaceChildren("Live bytes ");
        if (steps)
            title.append(choice("over", "Over", [["step", "peak of each step"], ["time", "over time"]], this.over, (value) => {
                this.over = value;
                this.curves();
            }));
        else {
            this.over = "time";
            title.append("over time");
        }
        const over = this.over;
        const columns = runs.map((run) => (over === "time" ? [run.time_ns.map((t) => t / 1e9), run.high] : [run.step, run.peak]));
        const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
        const probe = cuptimem.element("span");
        document.body.append(probe);
        const resolved = (name) => {
            probe.style.color = `var(${name})`;
            return getComputedStyle(probe).color;
        };
        const axis = { stroke: resolved("--faint"), grid: { stroke: resolved("--line"), width: 1 }, ticks: { stroke: resolved("--line") } };
        const series = (label, name, i) => ({
            label, stroke: resolved(name), width: 2, dash: i ? undefined : [6, 3], spanGaps: true,
            points: { show: columns[i][0].length < 2 || (over === "step" && columns[i][0].length < 60) }, value: (_, v) => (v == null ? "" : size(v)),
        });
        this.plot?.destroy();
        this.plot = new uPlot(
            {
                width: host.clientWidth || 800,
                height: 240,
                scales: { x: { time: false }, y: { range: (_, low, high) => [0, Math.max(1, high) * 1.06] } },
                axes: [{ ...axis, ...(over === "step" ? { incrs: Array.from({ length: 60 }, (_, i) => [1, 2, 5][i % 3] * 10 ** Math.floor(i / 3)) } : {}), values: (_, ticks) => ticks.map((t) => (over === "time" ? `${t} s` : Number.isInteger(t) ? t : "")) },
                    { ...axis, size: 82, values: (_, ticks) => ticks.map(size), incrs: Array.from({ length: 50 }, (_, i) => 2 ** i) }],
                series: [{ label: over === "time" ? "time" : "step", value: (_, v) => (v == null ? "" : over === "time" ? `${v.toFixed(3)} s` : v) }, series("before", "--before", 0), series("after", "--after", 1)],
            },
            joined(columns),
            host,
        );
        probe.remove();
        host.setAttribute("role", "img");
        host.setAttribute("aria-label", `Live bytes before and after on ${this.device}; the numbers stand above and below`);
    }

    section() {
        return this.here().sections.find((section) => section.key === this.what);
    }

    changes() {
        const { element, size } = cuptimem, section = this.section();
        document.getElementById("changes-title").textContent = `What changed on ${this.device}`;
        const cell = (text, kind = "number") => element("td", { class: kind }, text);
        const row = ([kind, was, is, , , , where, name, source, from, parts]) => {
            const [a, b] = this.perStep(section, [was, is]);
            return element("tr", {}, cell(signed(b - a), `number ${b > a ? "up" : b < a ? "down" : ""}`), cell(kind === "added" ? "" : size(a)), cell(kind === "removed" ? "" : size(b)),
                cell(KINDS[kind] ?? "", KINDS[kind] ? `kind ${kind}` : ""), this.place(where, from, parts), cell(name, ""), element("td", {}, element("code", {}, source)));
        };
        const fits = (change) => !this.term || change.slice(6, 10).some((text) => text.toLowerCase().includes(this.term));
        const rows = section.changes.filter(fits), [others, ...left] = section.others;
        const isEqual = (change) => {
            const [a, b] = this.perStep(section, [change[1], change[2]]);
            return !["added", "removed", "moved"].includes(change[0]) && a === b;
        };
        const hidden = this.equal ? [] : rows.filter(isEqual);
        const shown = rows.filter((change) => !hidden.includes(change)).map(row);
        if (hidden.length) {
            const equal = [1, 2].map((i) => hidden.reduce((total, change) => total + change[i], 0));
            shown.push(row(["", ...equal, 0, 0, "", `(${plural(hidden.length, "equal line")})`, "", "", "", []]));
        }
        const sums = [1, 2].map((i) => rows.reduce((total, change) => total + change[i], 0));
        const extra = (pair, text) => {
            sums[0] += pair[0];
            sums[1] += pair[1];
            shown.push(row(["", ...pair, 0, 0, "", text, "", "", "", []]));
        };
        if (!this.term && others) extra(left, `(${plural(others, "more line")})`);
        if (!this.term && (section.rest[0] || section.rest[1])) extra(section.rest, "(compacted: no line kept)");
        const [a, b] = this.perStep(section, sums);
        const foot = element("tr", { "data-before": sums[0], "data-after": sums[1] }, cell(signed(b - a)), cell(size(a)), cell(size(b)), element("td", { colspan: 4 }, this.term ? `${plural(rows.length, "line")} of ${section.changes.length}` : "in all"));
        const head = ["change", "before", "after", "", "line", "function", "code"];
        document.getElementById("changes").replaceChildren(element("table", { class: "sortable" },
            element("thead", {}, element("tr", {}, ...head.map((name, i) => element("th", { class: i < 3 ? "number" : "" }, name)))),
            element("tfoot", {}, foot), element("tbody", {}, ...shown)));
    }

    /** A line, where it was before, and which parts of it changed most. */
    place(where, from, parts) {
        const { element } = cuptimem, found = element("td", {}, where);
        const below = (text) => found.append(element("div", { class: "faint" }, text));
        if (from) below(`moved from ${from}`);
        if (parts) below(parts);
        return found;
    }

    draw() {
        const flame = this.what === "end" ? "end" : "peak";
        const measures = [0, 1].map((run) => this.stacks.find(flame, this.device, run));
        this.root = this.stacks.tree(measures, { by: "stack", inverted: this.inverted, own: false });
        const [was, is] = this.root.bytes;
        document.getElementById("flame-title").textContent = `Stacks ${flame === "peak" ? "at the peak" : "at the end"}: ${cuptimem.size(was)} → ${cuptimem.size(is)}`;
        Object.assign(this.root, { title: `all of ${this.device}`, name: `all of ${this.device}: ${cuptimem.size(this.root.bytes[this.width])} ${this.width ? "after" : "before"}` });
        const empty = this.root.bytes[this.width] === 0;
        document.getElementById("chart").hidden = empty;
        if (empty) document.getElementById("said").textContent = `Nothing was alive ${this.width ? "after" : "before"}.`;
        else this.flame.draw(this.root);
    }

    tip(node) {
        const { element, size } = cuptimem, [was, is] = node.bytes;
        const rows = [element("strong", {}, node.title)];
        if (node.place) rows.push(element("div", { class: "faint" }, `${node.place}${node.library ? ` · ${node.library}` : ""}`));
        if (node.source) rows.push(element("code", {}, node.source));
        rows.push(element("div", { class: "sum" }, element("b", {}, is === was ? "unchanged" : signed(is - was)), is === was ? "" : was ? ` (${is > was ? "+" : ""}${((100 * (is - was)) / was).toFixed(0)} %)` : " (new)"));
        rows.push(element("div", {}, `before ${size(was)} in ${plural(node.count[0], "block")}, after ${size(is)} in ${plural(node.count[1], "block")}`));
        return rows;
    }

    describe(node) {
        const [was, is] = node.bytes;
        return [node.title, node.place, `before ${cuptimem.size(was)}, after ${cuptimem.size(is)}, ${signed(is - was)}`].filter(Boolean).join(", ");
    }
}

/** Blue for less, orange for more, by the share of the larger of both that changed (as d3-flame-graph's own, but
 * light enough for dark ink). */
function changeColour(was, is) {
    const part = (is - was) / Math.max(1, was, is), strength = Math.round(100 * Math.sqrt(Math.abs(part)));
    return `color-mix(in srgb, var(${part > 0 ? "--grew" : "--shrank"}) ${strength}%, var(--same))`;
}

/** Two curves on one axis of numbers, as uPlot wants them. */
function joined([a, b]) {
    const xs = [...new Set([...a[0], ...b[0]])].sort((x, y) => x - y);
    const on = ([x, y]) => {
        const at = new Map();
        x.forEach((value, i) => at.set(value, Math.max(at.get(value) ?? 0, y[i])));
        return xs.map((value) => at.get(value) ?? null);
    };
    return [xs, on(a), on(b)];
}
