/* The picture of live bytes over time: stacked areas on uPlot's axes, lines and marks over them. It draws app.stack in app.view, and reports what the pointer does. */
"use strict";

const timelineChart = (() => {
    const { element } = cuptimem;
    const ink = timelineInk;
    const CLICK = 4; // pixels that a pointer may move and still have clicked
    const { LEFT } = timelineStrips;

    /** Polygon between two step lines over the intervals [from, to). */
    function area(path, u, x, ends, lower, upper, from, to) {
        const px = (value) => u.valToPos(value, "x", true), py = (value) => u.valToPos(value, "y", true);
        path.moveTo(px(x[from]), py(lower ? lower[from] : 0));
        for (let i = from; i < to; i++) {
            const y = py(upper[i]);
            path.lineTo(px(x[i]), y);
            path.lineTo(px(ends[i]), y);
        }
        for (let i = to - 1; i >= from; i--) {
            const y = py(lower ? lower[i] : 0);
            path.lineTo(px(ends[i]), y);
            path.lineTo(px(x[i]), y);
        }
        path.closePath();
    }

    function mix(colour, ground, part) {
        const parse = (text) => text.startsWith("#")
            ? [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16)) : text.match(/[\d.]+/g).slice(0, 3).map(Number);
        const [a, b] = [parse(colour), parse(ground)];
        return `rgb(${a.map((value, i) => Math.round(value * (1 - part) + b[i] * part)).join(",")})`;
    }

    class Chart {
        constructor(app, parent) {
            this.app = app;
            this.wrap = element("div", {
                class: "plot", tabindex: "0", role: "application", "aria-roledescription": "chart",
                "aria-label": "Live bytes over time. Arrow keys move the cursor, plus and minus zoom, question mark lists all keys.",
            });
            this.tip = element("div", { class: "tip", hidden: "" });
            parent.append(this.wrap);
            this.strips = new timelineStrips.Strips(app, this, parent);
            this._make();
        }

        // -- uPlot ---------------------------------------------------------------------------------------------------

        _make() {
            const app = this.app;
            const axis = {
                stroke: () => app.inks.faint, font: "12px system-ui, sans-serif",
                grid: { stroke: () => app.inks.grid, width: 1 }, ticks: { stroke: () => app.inks.grid, width: 1, size: 5 },
            };
            this.plot = new uPlot({
                width: this.width(), height: this._height(), padding: [26, 14, 0, 0],
                legend: { show: false }, series: [{}, { paths: () => null, points: { show: false } }],
                scales: { x: { time: false, auto: false }, y: { auto: false } },
                axes: [
                    { ...axis, size: 26, gap: 3, space: 90, values: (u, splits) => splits.map((v) => ink.time(v, splits[1] - splits[0])) },
                    {
                        ...axis, size: LEFT, gap: 6, values: (u, splits) => splits.map(cuptimem.size),
                        splits: (u, i, min, max) => ink.byteTicks(min, max, Math.max(2, this._height() / 64)),
                    },
                ],
                cursor: {
                    y: false, points: { show: false }, drag: { x: true, y: false, setScale: false, dist: CLICK },
                    bind: { mousedown: (u, target, handler) => (event) => (event.shiftKey ? null : handler(event)), dblclick: () => null },
                },
                hooks: {
                    drawAxes: [(u) => this._paint(u)],
                    setSelect: [(u) => this._selected(u)],
                    setCursor: [(u) => this._hover(u)],
                },
            }, [[0, app.model.duration], [0, 1]], this.wrap);
            const over = this.plot.over;
            this.marks = element("div", { class: "marks" });
            over.append(this.marks);
            this.wrap.append(this.tip);
            over.addEventListener("wheel", (event) => this._wheel(event), { passive: false });
            over.addEventListener("mousedown", (event) => this._down(event));
            over.addEventListener("mouseleave", () => (this.tip.hidden = true));
            over.addEventListener("dblclick", () => app.reset());
        }

        width() {
            return Math.max(280, this.wrap.clientWidth || 900);
        }

        _height() {
            return Math.max(220, Math.min(460, Math.round(window.innerHeight * 0.44)));
        }

        resize() {
            const [width, height] = [this.width(), this._height()];
            if (width !== this.plot.width || height !== this.plot.height) this.plot.setSize({ width, height });
            this.draw();
        }

        /** Draws what the app holds now. */
        draw() {
            const { app, plot } = this, { min, max } = app.view;
            plot.batch(() => {
                plot.setScale("x", { min, max });
                plot.setScale("y", { min: 0, max: app.highest() });
            });
            plot.redraw(false, true);
            this._placeMarks();
            this.strips.draw();
        }

        // -- the areas and lines -------------------------------------------------------------------------------------

        _paint(u) {
            const { app } = this, { stack } = app, context = u.ctx, box = u.bbox;
            if (!stack || !stack.x.length) return;
            const from = Math.max(0, timelineModel.before(stack.x, app.view.min));
            const to = Math.max(from + 1, timelineModel.before(stack.x, app.view.max) + 1);
            context.save();
            context.beginPath();
            context.rect(box.left, box.top, box.width, box.height);
            context.clip();
            this._paintSteps(u);
            const levels = [];
            let below = new Float64Array(stack.x.length);
            for (const group of stack.groups) levels.push((below = below.map((value, i) => value + group.values[i])));
            this.levels = levels;
            // From the top: each area goes down to zero and is painted over by those below it, so that no seam shows.
            for (let k = stack.groups.length - 1; k >= 0; k--) {
                const path = new Path2D();
                area(path, u, stack.x, stack.ends, null, levels[k], from, to);
                context.fillStyle = this._fill(stack.groups[k]);
                context.fill(path);
            }
            if ((to - from) * 2 < box.width) this._paintEdges(u, levels, from, to);
            stack.groups.forEach((group, k) => this._paintPattern(u, group, k ? levels[k - 1] : null, levels[k], from, to));
            this._paintTop(u, from, to);
            this._paintLines(u, from, to);
            this._paintCompacted(u);
            this._paintSelection(u);
            context.restore();
        }

        _fill(group) {
            const { app } = this, colour = ink.colour(group.colour, app.dark);
            return app.highlight !== null && app.highlight !== group.id ? mix(colour, app.inks.ground, 0.78) : colour;
        }

        /** A thin line of the ground between areas, where there is room for it. */
        _paintEdges(u, levels, from, to) {
            const context = u.ctx, { stack } = this.app;
            context.strokeStyle = mix(this.app.inks.ground, this.app.inks.ground, 0);
            context.globalAlpha = 0.55;
            context.lineWidth = 1;
            levels.slice(0, -1).forEach((level, k) => {
                if (!stack.groups[k].values.some((value) => value > 0)) return;
                this._line(u, level, stack, from, to);
            });
            context.globalAlpha = 1;
        }

        /** Stripes on what a leak has of a group, from the leak's first step; others on groups beyond the first seven. */
        _paintPattern(u, group, lower, upper, from, to) {
            const { app } = this, { stack } = app, context = u.ctx, dim = app.highlight !== null && app.highlight !== group.id;
            if (group.leak >= 0) {
                const start = app.stepTime(app.model.raw.leaks[group.leak].firstStep);
                let first = from;
                while (first < to && stack.ends[first] <= start) first++;
                if (first >= to) return;
                const path = new Path2D();
                area(path, u, stack.x, stack.ends, upper.map((value, i) => value - group.leaking[i]), upper, first, to);
                context.globalAlpha = dim ? 0.2 : 0.75;
                context.fillStyle = ink.stripes(context, app.dark ? "#fff" : "#000", 9, 1.4);
                context.fill(path);
                context.strokeStyle = app.inks.ink;
                context.lineWidth = 1.2 * devicePixelRatio;
                context.stroke(path);
            } else if (group.colour >= 7) {
                const path = new Path2D();
                area(path, u, stack.x, stack.ends, lower, upper, from, to);
                context.globalAlpha = dim ? 0.2 : 0.3;
                context.fillStyle = ink.stripes(context, app.inks.ground, 6, 1, true);
                context.fill(path);
            }
            context.globalAlpha = 1;
        }

        _line(u, values, { x, ends }, from, to, known = () => true) {
            const context = u.ctx;
            context.beginPath();
            let open = false;
            for (let i = from; i < to; i++) {
                if (!known(values[i])) {
                    open = false;
                    continue;
                }
                const y = u.valToPos(values[i], "y", true), left = u.valToPos(x[i], "x", true);
                if (open) context.lineTo(left, y);
                else context.moveTo(left, y);
                context.lineTo(u.valToPos(ends[i], "x", true), y);
                open = true;
            }
            context.stroke();
        }

        /** The live curve itself, over the areas. */
        _paintTop(u, from, to) {
            const context = u.ctx, { stack, inks } = this.app;
            context.strokeStyle = inks.ink;
            context.globalAlpha = 0.75;
            context.lineWidth = 1.2 * devicePixelRatio;
            this._line(u, stack.high, stack, from, to);
            context.globalAlpha = 1;
        }

        _paintLines(u, from, to) {
            const { app } = this, { stack } = app, context = u.ctx;
            context.lineWidth = 1.6 * devicePixelRatio;
            for (const line of app.lines.filter((one) => one.shown)) {
                context.strokeStyle = app.inks[line.ink];
                context.setLineDash(line.dash.map((part) => part * devicePixelRatio));
                if (line.name === "reserved") this._line(u, stack.reserved, stack, from, to, (value) => value >= 0);
                else this._points(u, line.points);
                context.setLineDash([]);
            }
        }

        /** Samples. What was between two of them is not known: only near ones are joined. */
        _points(u, { time, bytes }) {
            const context = u.ctx, near = 40 * devicePixelRatio, { view } = this.app;
            const first = Math.max(0, timelineModel.before(time, view.min)), last = Math.min(time.length - 1, timelineModel.before(time, view.max) + 1);
            const at = (i) => [u.valToPos(time[i], "x", true), u.valToPos(bytes[i], "y", true)];
            context.fillStyle = context.strokeStyle;
            for (let i = first; i <= last; i++) {
                const [x, y] = at(i), [left, before] = i > first ? at(i - 1) : [-Infinity, 0];
                if (x - left < near) {
                    context.beginPath();
                    context.moveTo(left, before);
                    context.lineTo(x, y);
                    context.stroke();
                }
                if (x - left < near) continue;
                context.beginPath();
                context.arc(x, y, 2.6 * devicePixelRatio, 0, 2 * Math.PI);
                context.fill();
            }
        }

        _paintSteps(u) {
            const { device, view, inks } = this.app, { steps } = device, context = u.ctx, box = u.bbox;
            const first = Math.max(0, timelineModel.before(steps.begin, view.min));
            const last = timelineModel.before(steps.begin, view.max);
            if (last < first || (last - first + 1) * 4 > box.width / devicePixelRatio) return;
            context.fillStyle = inks.step;
            for (let i = first; i <= last; i++) {
                if (steps.index[i] % 2) continue;
                const left = u.valToPos(steps.begin[i], "x", true), right = u.valToPos(steps.begin[i] + steps.length[i], "x", true);
                context.fillRect(left, box.top, right - left, box.height);
            }
        }

        _paintCompacted(u) {
            const compacted = this.app.model.raw.compacted, context = u.ctx, box = u.bbox;
            if (!compacted || compacted.begin < 0 || compacted.end < 0) return;
            const left = u.valToPos(compacted.begin, "x", true), right = u.valToPos(compacted.end, "x", true);
            context.globalAlpha = 0.4;
            context.fillStyle = ink.stripes(context, this.app.inks.faint, 12, 1, true);
            context.fillRect(left, box.top, right - left, box.height);
            context.globalAlpha = 1;
            context.fillStyle = this.app.inks.warning;
            context.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
            context.textAlign = "left";
            context.fillText("compacted: sums, survivors and peaks only", Math.max(left, box.left) + 8 * devicePixelRatio, box.top + 18 * devicePixelRatio);
        }

        _paintSelection(u) {
            const { selection, inks } = this.app, context = u.ctx, box = u.bbox;
            if (!selection) return;
            context.lineWidth = 1.5 * devicePixelRatio;
            context.strokeStyle = inks.accent;
            if (selection.kind === "moment") {
                const x = u.valToPos(selection.time, "x", true);
                context.beginPath();
                context.moveTo(x, box.top);
                context.lineTo(x, box.top + box.height);
                context.stroke();
                return;
            }
            const left = u.valToPos(selection.begin, "x", true), right = u.valToPos(selection.end, "x", true);
            context.globalAlpha = 0.12;
            context.fillStyle = inks.accent;
            context.fillRect(left, box.top, right - left, box.height);
            context.globalAlpha = 1;
            context.strokeRect(left, box.top + 1, right - left, box.height - 2);
        }

        // -- marks ---------------------------------------------------------------------------------------------------

        _placeMarks() {
            const { app, plot } = this, { device, view } = app, width = plot.over.clientWidth;
            const seen = (time) => time >= view.min && time <= view.max;
            const taken = [];
            this.marks.replaceChildren();
            const add = (kind, time, bytes, text, title, click) => {
                const left = plot.valToPos(time, "x"), top = Math.max(-2, plot.valToPos(bytes, "y"));
                const dot = element("span", { class: `dot ${kind}` });
                dot.style.left = `${left}px`;
                dot.style.top = `${top}px`;
                const label = element("button", { class: `mark ${kind}`, type: "button", title }, text);
                label.style.top = `${Math.max(-24, top - 26)}px`;
                label.addEventListener("mousedown", (event) => event.stopPropagation());
                label.addEventListener("dblclick", (event) => event.stopPropagation());
                label.addEventListener("click", (event) => {
                    event.stopPropagation();
                    click();
                });
                this.marks.append(dot, label);
                const wide = label.offsetWidth;
                let x = Math.min(Math.max(left - wide / 2, 0), Math.max(0, width - wide));
                const y = parseFloat(label.style.top);
                for (const other of taken)
                    if (Math.abs(other.y - y) < 22 && x < other.x + other.wide && x + wide > other.x)
                        x = other.x < wide + 4 ? other.x + other.wide + 4 : other.x - wide - 4;
                taken.push({ x, y, wide });
                label.style.left = `${x}px`;
            };
            const peak = device.peak;
            if (peak.bytes > 0 && seen(peak.time)) {
                const step = peak.step === null ? "" : ` · step ${peak.step}`;
                add("peak", peak.time, peak.bytes, `peak ${cuptimem.size(peak.bytes)}${step}`, "What the peak is made of", () => app.selectPeak());
            }
            for (const oom of device.raw.ooms.slice(0, 20))
                if (seen(oom.time)) {
                    const text = `out of memory: +${cuptimem.size(oom.requested)}`;
                    add("oom", oom.time, oom.allocated, text, "What was alive when the device refused", () => app.selectOom(oom));
                }
        }

        // -- the pointer ---------------------------------------------------------------------------------------------

        _down(event) {
            if (event.button !== 0) return;
            const { app, plot } = this, begin = { x: event.clientX, y: event.clientY, ...app.view };
            const scale = (begin.max - begin.min) / plot.over.clientWidth, panning = event.shiftKey;
            this.only = event.ctrlKey || event.altKey || event.metaKey; // sum up, but stay where we are
            const move = (now) => panning && app.look(begin.min - (now.clientX - begin.x) * scale, begin.max - (now.clientX - begin.x) * scale);
            const up = (now) => {
                document.removeEventListener("mousemove", move);
                document.removeEventListener("mouseup", up);
                if (panning || Math.hypot(now.clientX - begin.x, now.clientY - begin.y) >= CLICK) return;
                const box = plot.over.getBoundingClientRect(), [x, y] = [now.clientX - box.left, now.clientY - box.top];
                this._click(x, y);
            };
            document.addEventListener("mousemove", move);
            document.addEventListener("mouseup", up);
            this.wrap.focus({ preventScroll: true });
        }

        _click(x, y) {
            const { app, plot } = this, peak = app.device.peak;
            const near = Math.hypot(plot.valToPos(peak.time, "x") - x, plot.valToPos(peak.bytes, "y") - y) < 10;
            if (near) return app.selectPeak();
            const group = this._groupAt(x, y);
            app.selectMoment(plot.posToVal(x, "x"));
            if (group) app.setHighlight(group.id, true);
        }

        _selected(u) {
            const { left, width } = u.select;
            if (width < CLICK) return;
            const begin = u.posToVal(left, "x"), end = u.posToVal(left + width, "x");
            u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
            this.app.selectRange(begin, end, !this.only);
        }

        _wheel(event) {
            event.preventDefault();
            const { app, plot } = this, { min, max } = app.view;
            if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
                const shift = (event.deltaX / plot.over.clientWidth) * (max - min);
                return app.look(min + shift, max + shift);
            }
            const box = plot.over.getBoundingClientRect();
            app.zoom(Math.exp(Math.max(-120, Math.min(120, event.deltaY)) * 0.0025), plot.posToVal(event.clientX - box.left, "x"));
        }

        _groupAt(x, y) {
            const { stack } = this.app, i = timelineModel.before(stack.x, this.plot.posToVal(x, "x"));
            const bytes = this.plot.posToVal(y, "y");
            if (i < 0 || !this.levels || bytes < 0) return null;
            const k = this.levels.findIndex((level) => bytes < level[i]);
            return k < 0 ? null : { ...stack.groups[k], bytes: stack.groups[k].values[i] };
        }

        _hover(u) {
            const { app, tip } = this, { left, top } = u.cursor, { stack } = app;
            const i = left >= 0 && stack ? timelineModel.before(stack.x, u.posToVal(left, "x")) : -1;
            tip.hidden = i < 0;
            if (i < 0) return;
            const time = u.posToVal(left, "x"), step = app.device.stepIndex(time), group = this._groupAt(left, top);
            const head = element("div", { class: "tip-head" }, `${ink.time(time)}${step === null ? "" : ` · step ${step}`}`);
            const rows = [["live", cuptimem.size(stack.high[i])]];
            for (const line of app.lines.filter((one) => one.shown)) {
                const sample = line.points ? timelineModel.before(line.points.time, time) : -1;
                const value = line.points ? line.points.bytes[sample] : stack.reserved[i];
                const old = line.points && sample >= 0 && time - line.points.time[sample] > (app.view.max - app.view.min) * 0.05;
                rows.push([old ? `${line.label} at ${ink.time(line.points.time[sample])}` : line.label,
                    value === undefined || value < 0 ? "unknown" : cuptimem.size(value)]);
            }
            tip.replaceChildren(head, ...rows.map(([name, value]) => element("div", { class: "tip-row" }, element("span", {}, name), element("b", {}, value))));
            if (group) {
                const swatch = app.swatch(group.colour, group.leak);
                tip.append(element("div", { class: "tip-row tip-group" }, element("span", {}, swatch, group.label), element("b", {}, cuptimem.size(group.bytes))));
                if (group.detail && group.detail !== group.label) tip.append(element("div", { class: "code faint tip-code" }, group.detail));
                if (group.leak >= 0) tip.append(element("div", { class: "caveat" }, "striped: the stacks of a leak, which keeps a part of it"));
            }
            const room = this.wrap.clientWidth, across = tip.offsetWidth, x = left + LEFT;
            tip.style.left = `${x + 18 + across > room ? Math.max(0, x - across - 14) : x + 18}px`;
            tip.style.top = `${Math.max(4, Math.min(top + 10, this.plot.height - tip.offsetHeight - 10))}px`;
        }
    }

    return { Chart };
})();
