/* What stands beside the picture: the table of a moment or a range, one allocation, and the lists of leaks and advice. */
"use strict";

const timelineTable = (() => {
    const { element } = cuptimem;
    const ink = timelineInk;
    const ROWS = 40, MORE = 400, PARTS = 6;

    /** A stack, the user's frames in full ink. */
    function stackList(model, stack) {
        const frames = model.frames(stack);
        if (!frames.length) return element("p", { class: "faint" }, "No Python stack is known.");
        return element("ol", { class: "stack" }, ...frames.map((frame) => element("li", { class: frame.library ? "faint" : "" },
            element("span", { class: "code" }, frame.place || "…"), " ", element("span", { class: "code" }, frame.function),
            ...(frame.module ? [element("span", { class: "tag" }, frame.module)] : []),
            ...(frame.source ? [element("div", { class: "code source" }, frame.source)] : []))));
    }

    /** A name that is cut before its line number where there is no room: the number tells lines of a file apart. */
    function rowLabel(label) {
        const end = /:\d+$/.exec(label)?.[0] ?? "";
        return element("span", { class: "row-label", title: label }, element("span", { class: "row-cut" }, label.slice(0, label.length - end.length)), end);
    }

    class Table {
        constructor(app, parent) {
            this.app = app;
            this.open = null;
            this.rows = ROWS;
            this.title = element("h2", { class: "side-title" });
            this.said = element("p", { class: "side-said" });
            this.block = element("div", { class: "block-facts", hidden: "" });
            this.table = element("table", { class: "contributors" });
            this.below = element("div", {});
            parent.append(this.title, this.said, this.block, this.table, this.below);
        }

        draw() {
            const { app } = this, { selection } = app;
            if (!selection) return;
            const isMoment = selection.kind === "moment";
            const found = isMoment ? app.device.moment(selection.time) : app.device.range(selection.begin, selection.end);
            if (!found) {
                this.title.textContent = "Nothing was allocated here";
                return;
            }
            this.found = found;
            const list = app.matches ? found.list.filter((one) => app.matches[one.contributor]) : found.list;
            this._head(isMoment, found, list);
            this._rows(isMoment, found, app.model.grouped(list, app.grouping));
            this._block();
        }

        _head(isMoment, found, list) {
            const { app } = this, { selection, device } = app, size = cuptimem.size;
            const step = device.stepIndex(isMoment ? found.time : found.begin), last = device.stepIndex(Math.max(0, found.end - 1));
            const facts = [];
            if (isMoment) {
                this.title.textContent = selection.name ?? `Alive at ${ink.time(found.time)}`;
                facts.push(`${size(found.total)} live`);
                if (selection.name) facts.push(ink.time(found.time));
                if (step !== null) facts.push(`step ${step}`);
            } else {
                this.title.textContent = selection.name ?? `From ${ink.time(found.begin)} to ${ink.time(found.end)}`;
                facts.push(`${size(found.born)} born`, `${size(found.died)} died`);
                if (step !== null) facts.push(step === last || last === null ? `step ${step}` : `steps ${step} to ${last}`);
            }
            if (app.matches) facts.push(`${ink.count(list.length)} of ${ink.count(found.list.length)} stacks match`);
            this.said.textContent = facts.join(" · ");
            this.said.dataset.bytes = String(isMoment ? found.total : found.born);
        }

        _rows(isMoment, found, groups) {
            const { app } = this, size = cuptimem.size, exact = (bytes) => `${ink.count(bytes)} bytes`;
            const columns = isMoment ? ["live", "share"] : ["born", "died", "still alive"];
            const head = element("thead", {}, element("tr", {}, element("th", { scope: "col" }, app.grouping),
                ...columns.map((text) => element("th", { class: "number", scope: "col" }, text))));
            const cells = (row, total) => isMoment
                ? [[size(row.bytes), exact(row.bytes)], [total ? `${((100 * row.bytes) / total).toFixed(0)} %` : "", ""]]
                : [row.born, row.died, row.bytes].map((bytes, i) => bytes === null ? ["unknown", ""]
                    : [`${row.least && i === 2 ? "≥ " : ""}${size(bytes)}`, exact(bytes)]);
            const rest = app.matches ? { bytes: 0, born: 0, died: 0 } : found.rest;
            const numbers = (row) => cells(row, found.total).map(([text, title], i) =>
                element("td", { class: "number", title, ...(i === 0 ? { "data-bytes": isMoment ? row.bytes : row.born } : {}) }, text));
            const body = element("tbody", {}), shown = groups.slice(0, this.rows);
            const drawn = new Map(app.stack.groups.map((group) => [group.id, group]));
            for (const row of shown) {
                const group = drawn.get(row.id), chosen = app.highlight === row.id || this.open === row.id;
                const button = element("button", { class: "row-name", type: "button", "aria-expanded": String(this.open === row.id), title: "Highlight it, and show its stacks" },
                    app.swatch(group ? group.colour : -1, app.model.leakOf(app.grouping, row.id)), rowLabel(row.label));
                const marks = app.model.advised(app.grouping, row.id).slice(0, 1).map((one) => element("div", { class: "row-detail advised" },
                    element("span", { class: "tag", title: `${one.write}\n${one.cost}` }, `${one.technique} −${one.saves}`)));
                const line = element("tr", { class: chosen ? "chosen" : "", "data-group": row.id },
                    element("td", {}, button, ...(row.detail && row.detail !== row.label ? [element("div", { class: "code faint row-detail" }, row.detail)] : []), ...marks), ...numbers(row));
                line.addEventListener("click", () => this.toggle(row.id));
                body.append(line);
                if (this.open === row.id) body.append(this._detail(row, isMoment));
            }
            if (rest.bytes || rest.bytes === null || rest.born || rest.died) {
                const why = found.hidden ? `stacks of at most ${size(found.hidden)} each` : "in no stack that is known";
                body.append(element("tr", { class: "rest", "data-group": timelineModel.REST },
                    element("td", {}, app.swatch(-1, -1), `everything else`, element("div", { class: "faint row-detail" }, why)), ...numbers(rest)));
            }
            const left = groups.slice(shown.length).reduce((sum, row) => ({ bytes: sum.bytes + row.bytes, born: sum.born + row.born, died: sum.died + row.died }),
                { bytes: 0, born: 0, died: 0 });
            if (groups.length > shown.length) {
                const button = element("button", { type: "button", class: "quiet" }, `${ink.count(groups.length - shown.length)} more`);
                button.addEventListener("click", () => {
                    this.rows += MORE;
                    this.draw();
                });
                body.append(element("tr", { "data-group": "more" }, element("td", {}, button), ...numbers(left)));
            }
            const all = groups.reduce((sum, row) => ({ ...sum, bytes: sum.bytes + row.bytes, born: sum.born + row.born, died: sum.died + row.died }), { ...rest, least: rest.bytes === null });
            const foot = element("tfoot", {}, element("tr", {}, element("td", {}, app.matches ? "sum of what matches" : "sum"), ...numbers(all)));
            this.table.replaceChildren(element("caption", { class: "unseen" }, this.title.textContent), head, body, foot);
        }

        _detail(row, isMoment) {
            const { app } = this, { contributors, groups } = app.model.raw, cell = element("td", { colspan: isMoment ? 3 : 4 });
            for (const one of app.model.advised(app.grouping, row.id))
                cell.append(element("p", { class: "part" }, `${one.technique} would save ${one.saves}: `, element("span", { class: "code" }, one.write)));
            for (const part of row.parts.slice(0, PARTS)) {
                const i = part.contributor, facts = [cuptimem.size(isMoment ? part.bytes : part.born), groups.phase[contributors.phase[i]][0]];
                const [category] = groups.category[contributors.category[i]], module = groups.module[contributors.module[i]][1];
                if (category !== "unknown") facts.push(contributors.savedBy[i] ? `${category} saved by ${contributors.savedBy[i]}` : category);
                if (contributors.operator[i]) facts.push(contributors.operator[i]);
                if (module) facts.push(module);
                cell.append(element("p", { class: "part" }, facts.join(" · ")));
                const leak = contributors.leak[i];
                if (leak >= 0) cell.append(this._leakNote(app.model.raw.leaks[leak]));
                cell.append(stackList(app.model, contributors.stack[i]));
                if (contributors.origin[i] >= 0)
                    cell.append(element("details", {}, element("summary", {}, "backward() was called here"), stackList(app.model, contributors.origin[i])));
            }
            if (row.parts.length > PARTS) cell.append(element("p", { class: "faint" }, `${ink.count(row.parts.length - PARTS)} more stacks`));
            return element("tr", { class: "detail" }, cell);
        }

        _leakNote(leak) {
            return element("p", { class: "caveat" }, `A leak: +${cuptimem.size(Math.round(leak.rate))} a step since step ${leak.firstStep}.`);
        }

        toggle(id) {
            this.open = this.open === id ? null : id;
            this.app.setHighlight(this.open === null ? null : id, false);
        }

        /** One allocation, above the table. */
        _block() {
            const { app } = this, { block } = app;
            this.block.hidden = !block;
            if (!block) return;
            const facts = app.blockFacts(block), close = element("button", { type: "button", class: "quiet", "aria-label": "Close" }, "✕");
            close.addEventListener("click", () => app.selectBlock(null));
            const rows = [["size", `${cuptimem.size(block.bytes)} (${ink.count(block.bytes)} bytes)`], ["born", facts.born], ["died", facts.died],
                ["address", `0x${block.address.toString(16)}`], ["category", facts.category], ["phase", facts.phase],
                ["module", facts.module], ["operator", facts.operator], ["saved by", facts.savedBy], ["kept by", facts.leak]];
            this.block.replaceChildren(element("div", { class: "block-title" }, element("b", {}, `One allocation of ${facts.label}`), close),
                element("dl", {}, ...rows.filter(([, value]) => value).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)])),
                stackList(app.model, facts.stack));
        }
    }

    /** Leaks, suspects, refused allocations and advice, each a button that jumps to its place. */
    function lists(app, parent) {
        const { leaks } = app.model.raw;
        const list = (title, rows, note) => {
            if (!rows.length) return;
            parent.append(element("details", { class: "list", ...(title === "Suspects" ? {} : { open: "" }) }, element("summary", {}, `${title} (${ink.count(rows.length)})`),
                ...(note ? [element("p", { class: "faint" }, note)] : []), element("ul", {}, ...rows.map((row) => element("li", {}, row)))));
        };
        const leakButton = (leak) => {
            const about = leak.estimated ? "about " : "", line = app.model.colourOf("line", leak.line);
            const button = element("button", { type: "button", class: "jump leak-jump" },
                element("span", { class: "jump-head" }, leak.line >= 0 ? app.swatch(line, leak.verdict ? 0 : -1) : "", element("b", {}, `${about}+${cuptimem.size(Math.round(leak.rate))} a step`),
                    ` on ${leak.kind === "nodes" ? "the autograd graph" : leak.device}`),
                element("span", { class: "code" }, `${leak.where}  ${leak.function}`),
                ...(leak.source ? [element("span", { class: "code faint" }, leak.source)] : []),
                element("span", { class: "faint" }, `${leak.alive} alive, made in steps ${leak.firstStep} to ${leak.lastStep}${leak.loop ? ` of ${leak.loop}` : ""}`),
                ...(leak.why ? [element("span", { class: "faint" }, leak.why)] : []));
            button.addEventListener("click", () => app.jumpToLeak(leak));
            return button;
        };
        list("Leaks", leaks.filter((leak) => leak.verdict).map(leakButton),
            "Striped above are all bytes of their stacks since their first step, kept or not; of single allocations those that were kept.");
        list("Suspects", leaks.filter((leak) => !leak.verdict).map(leakButton), "These grew, and are no verdict: each says why.");
        const ooms = app.model.devices.flatMap((device) => device.raw.ooms.map((oom) => {
            const button = element("button", { type: "button", class: "jump" }, element("b", {}, `asked for ${cuptimem.size(oom.requested)}`),
                element("span", { class: "faint" }, `${device.name}, with ${cuptimem.size(oom.allocated)} in use, at ${ink.time(oom.time)}`));
            button.addEventListener("click", () => {
                app.selectDevice(device);
                app.selectOom(oom);
            });
            return button;
        }));
        list("Out of memory", ooms);
        const { advice = [], adviceNote } = app.model.raw;
        list("What would lower the peak", advice.map((one) => {
            const button = element("button", { type: "button", class: "jump" }, element("b", {}, `${one.technique}: ${one.saves}`),
                element("span", { class: "code" }, one.where), element("span", { class: "code" }, one.write), element("span", { class: "faint" }, `cost: ${one.cost}`));
            button.addEventListener("click", () => app.jumpToAdvice(one));
            return button;
        }), `Predicted, each alone${adviceNote ? `; ${adviceNote}` : ""}.`);
    }

    /** What must not be overlooked, above the picture. */
    function alerts(app, parent) {
        const add = (mark, strong, text, act) => {
            const button = element("button", { type: "button", class: "alert" }, mark, element("b", {}, strong), text);
            button.addEventListener("click", act);
            parent.append(button);
        };
        for (const device of app.model.devices)
            for (const oom of device.raw.ooms.slice(0, 1))
                add("", "out of memory", ` on ${device.name}: asked for ${cuptimem.size(oom.requested)} with ${cuptimem.size(oom.allocated)} in use`, () => {
                    app.selectDevice(device);
                    app.selectOom(oom);
                });
        for (const leak of app.model.raw.leaks.filter((one) => one.verdict).slice(0, 3)) {
            const about = leak.estimated ? "about " : "";
            add(app.swatch(leak.line >= 0 ? app.model.colourOf("line", leak.line) : -1, 0), `leak: ${about}+${cuptimem.size(Math.round(leak.rate))} a step`, ` at ${leak.where}`,
                () => app.jumpToLeak(leak));
        }
        parent.hidden = !parent.children.length;
    }

    return { Table, lists, alerts, stackList };
})();
