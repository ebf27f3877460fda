/* The timeline: cuptimemTimeline(root, data) builds it below `root` and keeps all its state in one object.
   It returns that object. options.keys "page": keys work wherever on the page nothing else has the focus.
   Two of them may be joined: what is looked at in one is looked at in the other, and both have one scale. */
"use strict";

const timelineApp = (() => {
    const { element } = cuptimem;
    const ink = timelineInk;
    const GROUPINGS = { line: "line of code", function: "function", module: "module", category: "category", phase: "phase", library: "library" };
    const KEYS = [
        ["← →", "move the cursor"], ["shift ← →, shift-drag", "move the view"], ["+ −, wheel", "zoom"], ["drag", "zoom in, and sum up the range"],
        ["ctrl-drag", "sum up the range only"], ["0, double click", "the whole recording"], ["[ ]", "previous, next step"], ["p", "the peak"],
        ["/", "search"], ["l", "stack by the next kind of place"], ["d", "light or dark"], ["Esc", "clear highlight and search"], ["?", "this list"],
    ];

    class App {
        constructor(root, raw, options) {
            this.root = root;
            this.model = new timelineModel.Model(raw, options.like?.model);
            this.limits = { min: 0, max: this.model.duration };
            this.beside = null; // {app, later}: the other one, and how much later its moments are in this one's time
            this.grouping = raw.stackedBy ?? "line";
            this.matches = null;
            this.highlight = null;
            this.selection = null;
            this.block = null;
            this.stacks = new Map();
            root.classList.add("timeline");
            root.replaceChildren();
            if (!this.model.devices.some((device) => device.overview?.at.begin.length)) {
                root.append(element("p", { class: "empty" }, "Nothing was allocated by PyTorch while this was recorded, so there is no picture."));
                return;
            }
            this.device = this.model.devices.find((device) => device.overview?.at.begin.length);
            const [min, max] = raw.opening ?? [this._firstBytes(), this.model.duration];
            this.view = { min, max };
            this._readInks();
            this._build();
            this.chart = new timelineChart.Chart(this, this.left);
            this.blocks = new timelineBlocks.Blocks(this, this.left);
            this.table = new timelineTable.Table(this, this.side);
            const jumps = element("div", { class: "jumps" });
            this.side.append(jumps);
            timelineTable.lists(this, jumps);
            timelineKeys(this, options.keys === "page" ? root.ownerDocument : root);
            this.selectDevice(this.device);
            this._watch();
        }

        /** A little before the first live bytes: imports may take long. */
        _firstBytes() {
            const { at } = this.device.overview, first = at.high.findIndex((bytes) => bytes > 0), all = this.model.duration;
            return first < 0 ? 0 : Math.max(0, at.begin[first] - (all - at.begin[first]) * 0.05);
        }

        // -- what there is to press ------------------------------------------------------------------------------------

        _build() {
            this.tabs = element("div", { class: "tabs", role: "tablist", "aria-label": "Device" });
            for (const device of this.model.devices) {
                const tab = element("button", { type: "button", role: "tab", class: "tab" }, device.name, element("span", { class: "faint" }, ` ${cuptimem.size(device.peak.bytes)}`));
                tab.addEventListener("click", () => this.selectDevice(device));
                tab.device = device;
                this.tabs.append(tab);
            }
            this.tabs.addEventListener("keydown", (event) => this._tabKey(event));
            this.by = element("select", { "aria-label": "Stack by" }, ...Object.entries(GROUPINGS).map(([value, text]) => element("option", { value }, text)));
            this.by.value = this.grouping;
            this.by.addEventListener("change", () => this.setGrouping(this.by.value));
            this.search = element("input", { type: "search", placeholder: "search code, files, modules", "aria-label": "Search", spellcheck: "false" });
            this.search.addEventListener("input", () => this.setSearch(this.search.value));
            this.lineBoxes = element("span", { class: "lines" });
            const button = (text, title, action) => {
                const made = element("button", { type: "button", title, "aria-label": title }, text);
                made.addEventListener("click", action);
                return made;
            };
            const bar = element("div", { class: "controls bar" }, this.tabs, element("label", {}, "stacked by ", this.by), this.search, this.lineBoxes,
                element("span", { class: "gap" }), button("Peak", "Go to the peak (p)", () => this.selectPeak(true)),
                button("−", "Zoom out", () => this.zoom(2)), button("+", "Zoom in", () => this.zoom(0.5)), button("Reset", "The whole recording (0)", () => this.reset()),
                button("◐", "Light or dark (d)", () => this.toggleTheme()), button("?", "Keys (?)", () => this.toggleHelp()));
            this.help = element("div", { class: "help", hidden: "", role: "dialog", "aria-label": "Keys" },
                element("table", {}, element("tbody", {}, ...KEYS.map(([key, what]) => element("tr", {}, element("th", { scope: "row" }, key), element("td", {}, what))))));
            this.live = element("div", { class: "unseen", "aria-live": "polite" });
            this.phaseLegend = element("p", { class: "phases faint" });
            this.left = element("div", { class: "pictures" });
            this.side = element("aside", { class: "side", "aria-label": "What is alive at the cursor" });
            this.alerts = element("div", { class: "alerts" });
            timelineTable.alerts(this, this.alerts);
            this.root.append(bar, this.help, this.alerts, element("div", { class: "panes" }, this.left, this.side), this.live);
        }

        _tabKey(event) {
            const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
            if (!step) return;
            event.preventDefault();
            event.stopPropagation();
            const { devices } = this.model, next = devices[(devices.indexOf(this.device) + step + devices.length) % devices.length];
            this.selectDevice(next);
            [...this.tabs.children].find((tab) => tab.device === next).focus();
        }

        _watch() {
            const dark = window.matchMedia("(prefers-color-scheme: dark)");
            dark.addEventListener("change", () => this._restyle());
            const size = new ResizeObserver(() => this._later(() => this.resize()));
            size.observe(this.left);
            // A printer has a white ground, whatever the screen has.
            window.matchMedia("print").addEventListener("change", () => this._restyle());
            window.addEventListener("beforeprint", () => this._restyle());
            window.addEventListener("afterprint", () => this._restyle());
        }

        _later(action) {
            cancelAnimationFrame(this.pending);
            this.pending = requestAnimationFrame(action);
        }

        resize() {
            this.chart.resize();
            this.blocks.draw();
        }

        _readInks() {
            const read = (name) => ink.variable(this.root, name);
            this.dark = ink.isDark(this.root);
            this.inks = {
                ground: read("--ground"), ink: read("--ink"), faint: read("--faint"), grid: read("--line"), accent: read("--accent"), warning: read("--warning"),
                step: this.dark ? "rgba(255,255,255,0.035)" : "rgba(20,30,50,0.035)", stepStrong: read("--raised-strong"),
                reserved: this.dark ? "#9fb3c8" : "#4d5f73", used: this.dark ? "#ff9e80" : "#a63c06", resident: this.dark ? "#c5a3ff" : "#6b3fa0",
            };
        }

        _restyle() {
            this._readInks();
            this._lineToggles();
            this.draw();
        }

        toggleTheme() {
            document.documentElement.dataset.theme = this.dark ? "light" : "dark";
            this._restyle();
            this.beside?.app._restyle();
        }

        toggleHelp() {
            this.help.hidden = !this.help.hidden;
        }

        // -- what is shown ---------------------------------------------------------------------------------------------

        keep = (contributor) => !this.matches || this.matches[contributor];

        /** The stack that the present view is drawn from. */
        get stack() {
            const level = this.device.level(this.view.min, this.view.max), key = `${this.device.name} ${this.grouping} ${level}`;
            if (!this.stacks.has(key)) this.stacks.set(key, this.device.stack(this.grouping, level, this.keep));
            return this.stacks.get(key);
        }

        /** The upper end of the scale of bytes. */
        highest() {
            return Math.max(this._highest(), this.beside?.app._highest() ?? 0);
        }

        _highest() {
            const { min, max } = this.view, { most, reserved } = this.device.highest(this.stack, min, max);
            let top = most;
            for (const line of this.lines.filter((one) => one.shown)) {
                if (line.name === "reserved") top = Math.max(top, reserved);
                else {
                    const { time, bytes } = line.points;
                    for (let i = Math.max(0, timelineModel.before(time, min)); i < time.length && time[i] <= max; i++) top = Math.max(top, bytes[i]);
                }
            }
            return Math.max(1, top * 1.04);
        }

        draw(alone = false) {
            this.chart.draw();
            this.blocks.draw();
            this.table.draw();
            if (!alone) this.beside?.app.draw(true);
        }

        selectDevice(device) {
            this.device = device;
            this.highlight = this.block = null;
            for (const tab of this.tabs.children) {
                const chosen = tab.device === device;
                tab.setAttribute("aria-selected", String(chosen));
                tab.tabIndex = chosen ? 0 : -1;
            }
            this.lines = this._lines();
            this._lineToggles();
            this.blocks.load();
            this.selectPeak();
        }

        _lines() {
            const { raw, peak } = this.device, lines = [], fits = (most) => most <= 1.6 * Math.max(1, peak.bytes);
            if (raw.reservedPeak !== null) lines.push({ name: "reserved", label: "reserved", ink: "reserved", dash: [], most: raw.reservedPeak, shown: true });
            const most = (points) => points.bytes.reduce((a, b) => Math.max(a, b), 0);
            if (raw.used.time.length) lines.push({ name: "used", label: "device used", ink: "used", dash: [6, 3], points: raw.used, most: most(raw.used), shown: fits(most(raw.used)) });
            const resident = this.model.raw.resident;
            if (this.device.name === "cpu" && resident.time.length)
                lines.push({ name: "resident", label: "resident memory", ink: "resident", dash: [2, 2], points: resident, most: most(resident), shown: fits(most(resident)) });
            if (this.device.name === "cpu")
                for (const one of this.model.raw.host ?? [])
                    lines.push({ name: `host ${one.role}`, label: `resident: ${one.role}, all`, ink: "resident", dash: [1, 3], points: one, most: most(one), shown: false });
            return lines;
        }

        _lineToggles() {
            this.lineBoxes.replaceChildren(...this.lines.map((line) => {
                const box = element("input", { type: "checkbox", ...(line.shown ? { checked: "" } : {}) });
                box.addEventListener("change", () => {
                    line.shown = box.checked;
                    this.draw();
                });
                const mark = element("span", { class: "line-mark" });
                mark.style.borderTop = `2px ${line.dash.length ? "dashed" : "solid"} ${this.inks[line.ink]}`;
                return element("label", { class: "line-toggle", title: `at most ${cuptimem.size(line.most)}` }, box, mark, `${line.label} `, element("span", { class: "faint" }, cuptimem.size(line.most)));
            }));
        }

        showPhases(phases) {
            const text = phases.map(([name]) => name).join();
            if (this.phaseLegend.dataset.of === text + this.dark) return;
            this.phaseLegend.dataset.of = text + this.dark;
            this.phaseLegend.replaceChildren(...phases.map(([name, colour]) => {
                const mark = element("span", { class: "swatch" });
                mark.style.background = colour;
                return element("span", { class: "phase" }, mark, name);
            }));
        }

        /** A square of a group's colour; with stripes for a leak. */
        swatch(slot, leak) {
            const mark = element("span", { class: leak >= 0 ? "swatch leaks" : "swatch" });
            mark.style.backgroundColor = ink.colour(slot, this.dark);
            return mark;
        }

        setGrouping(grouping) {
            for (const app of this._joined()) {
                app.grouping = app.by.value = grouping;
                app.highlight = app.table.open = null;
            }
            this.draw();
        }

        setSearch(text) {
            for (const app of this._joined()) {
                app.search.value = text;
                app.matches = text.trim() ? app.model.matching(text.trim()) : null;
                app.stacks.clear();
                app.highlight = null;
            }
            this.draw();
        }

        _joined() {
            return this.beside ? [this, this.beside.app] : [this];
        }

        /** open: also show its stacks in the table. */
        setHighlight(id, open) {
            this.highlight = id;
            if (open) this.table.open = id;
            this.draw();
            const row = open && this.side.querySelector("tr.chosen");
            if (row) this.side.scrollTop = Math.max(0, row.offsetTop - this.side.clientHeight / 3); // the page itself stays
        }

        clear() {
            this.help.hidden = true;
            this.highlight = this.block = this.table.open = null;
            if (this.matches) return this.setSearch("");
            this.draw();
        }

        // -- where we look ---------------------------------------------------------------------------------------------

        look(min, max) {
            const { limits, beside } = this, all = limits.max - limits.min, width = Math.min(all, Math.max(max - min, Math.min(all, 200)));
            const begin = Math.max(limits.min, Math.min(limits.max - width, min));
            this.view = { min: begin, max: begin + width };
            if (beside) beside.app.view = { min: begin - beside.later, max: begin + width - beside.later };
            this._later(() => this.draw());
        }

        zoom(factor, around = this.selection?.kind === "moment" ? this.selection.time : (this.view.min + this.view.max) / 2) {
            const { min, max } = this.view, middle = Math.min(max, Math.max(min, around));
            this.look(middle - (middle - min) * factor, middle + (max - middle) * factor);
        }

        reset() {
            this.look(this.limits.min, this.limits.max);
        }

        /** The moment of the most live bytes in the interval that has this time. */
        selectMoment(time, name) {
            this._selectMoment(time, name);
            this.beside?.app._selectMoment(time - this.beside.later);
            this._later(() => this.draw());
            this._announce();
        }

        _selectMoment(time, name) {
            const found = this.device.moment(Math.max(0, Math.min(this.model.duration, time)));
            this.selection = { kind: "moment", time: found ? found.time : time, name };
        }

        selectPeak(zoom) {
            const { time } = this.device.peak, fine = this.device.charts[this.device.charts.length - 1];
            if (zoom && fine.begin <= time && time <= fine.end) this.look(fine.begin, fine.end);
            else if (time < this.view.min || time > this.view.max) this.reset();
            this.selectMoment(time, "At the peak");
        }

        selectOom(oom) {
            if (oom.time < this.view.min || oom.time > this.view.max) this.reset();
            this.selectMoment(oom.time, "When the device refused");
        }

        selectRange(begin, end, zoom) {
            this.selection = { kind: "range", begin, end };
            if (this.beside) this.beside.app.selection = { kind: "range", begin: begin - this.beside.later, end: end - this.beside.later };
            if (zoom) this.look(begin, end);
            else this._later(() => this.draw());
        }

        selectBlock(block) {
            this.block = block;
            this.table.draw();
            this.blocks.draw();
            if (block) this.side.scrollTop = 0;
        }

        jumpToLeak(leak) {
            const device = this.model.devices.find((one) => one.name === leak.device);
            if (device && device !== this.device) this.selectDevice(device);
            if (this.matches) this.setSearch("");
            if (this.grouping !== "line") this.setGrouping("line");
            this.look(this.stepTime(leak.firstStep), this.model.duration);
            this.selectMoment(this.stepTime(leak.lastStep, true));
            this.setHighlight(leak.line >= 0 ? leak.line : null, leak.line >= 0);
        }

        jumpToAdvice(one) {
            const device = this.model.devices.find((other) => other.name === one.device);
            if (device && device !== this.device) this.selectDevice(device);
            if (this.matches) this.setSearch("");
            if (this.grouping !== "line") this.setGrouping("line");
            this.selectPeak(true);
            this.setHighlight(one.line >= 0 ? one.line : null, true);
        }

        /** When a step begins, or ends. */
        stepTime(index, end = false) {
            const { steps } = this.device, place = steps.index.indexOf(index);
            return place < 0 ? 0 : steps.begin[place] + (end ? Math.max(0, steps.length[place] - 1) : 0);
        }

        /** Moves the cursor by intervals. */
        move(by) {
            const { stack } = this, time = this.selection?.kind === "moment" ? this.selection.time : this.view.min;
            const place = Math.max(0, Math.min(stack.x.length - 1, timelineModel.before(stack.x, time) + by)), at = stack.x[place];
            this._keepInView(at);
            this.selectMoment(at);
        }

        moveStep(by) {
            const { steps } = this.device, time = this.selection?.kind === "moment" ? this.selection.time : this.view.min;
            if (!steps.index.length) return;
            const place = Math.max(0, Math.min(steps.index.length - 1, timelineModel.before(steps.begin, time) + by));
            this._keepInView(steps.begin[place]);
            this.selectMoment(steps.begin[place]);
        }

        _keepInView(time) {
            const { min, max } = this.view, width = max - min;
            if (time < min) this.look(time - width * 0.1, time + width * 0.9);
            else if (time > max) this.look(time - width * 0.9, time + width * 0.1);
        }

        _announce() {
            const found = this.device.moment(this.selection.time);
            if (!found) return;
            const step = this.device.stepIndex(found.time), [most] = this.model.grouped(found.list, this.grouping);
            this.live.textContent = `${ink.time(found.time)}${step === null ? "" : `, step ${step}`}: ${cuptimem.size(found.total)} live` +
                (most ? `, most of it ${most.label} with ${cuptimem.size(most.bytes)}` : "");
        }

        /** What is known of one allocation. */
        blockFacts(block) {
            const { contributors, groups } = this.model.raw, i = block.contributor;
            const leak = this.model.leakOfBlock(block), [label, detail] = groups.line[contributors.line[i]], when = (time, step) => `${ink.time(time)}${step >= 0 ? `, step ${step}` : ""}`;
            return {
                label, detail, stack: contributors.stack[i], operator: contributors.operator[i], savedBy: contributors.savedBy[i],
                phase: groups.phase[contributors.phase[i]][0], module: groups.module[contributors.module[i]][1], category: groups.category[contributors.category[i]][0],
                born: block.begin < 0 ? "before the recording" : when(block.begin, block.step),
                leak: leak ? `a leak, +${cuptimem.size(Math.round(leak.rate))} a step` : "",
                died: block.end < 0 ? "alive at the end" : when(block.end, block.endStep),
            };
        }
    }

    /** later: how much later the other one's moments are in the time of the first. */
    function join(one, other, later) {
        one.beside = { app: other, later };
        other.beside = { app: one, later: -later };
        one.limits = { min: Math.min(0, later), max: Math.max(one.model.duration, other.model.duration + later) };
        other.limits = { min: one.limits.min - later, max: one.limits.max - later };
        one.look(Math.min(one.view.min, other.view.min + later), Math.max(one.view.max, other.view.max + later));
        one.setGrouping(one.grouping);
        (one.device.peak.bytes < other.device.peak.bytes ? other : one).selectPeak();
    }

    return { App, join };
})();

/** Builds the timeline of `data` below `root`. */
function cuptimemTimeline(root, data, options = {}) {
    return new timelineApp.App(root, data, options);
}

/** The same of two recordings, each {data, later}: what is later, of the second, is in nanoseconds. */
function cuptimemTimelines(roots, [first, second]) {
    const one = new timelineApp.App(roots[0], first.data, { keys: "page" });
    const other = new timelineApp.App(roots[1], second.data, { like: one });
    if (one.device && other.device) timelineApp.join(one, other, second.later);
    return [one, other];
}
