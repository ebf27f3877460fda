/* Single allocations: each a rectangle from its birth to its death, as high as it is large. */
"use strict";

const timelineBlocks = (() => {
    const { element } = cuptimem;
    const ink = timelineInk;
    const LEFT = timelineStrips.LEFT;

    /** Offsets as an allocator without holes would give them: the lowest gap that has room for the block's whole life. */
    function pack(blocks, duration) {
        const live = []; // by offset
        for (const block of blocks) {
            const begin = Math.max(0, block.begin);
            let kept = 0;
            for (const other of live) if (other.until > begin) live[kept++] = other;
            live.length = kept;
            let offset = 0, place = 0;
            while (place < live.length && live[place].offset - offset < block.bytes) {
                offset = live[place].offset + live[place].bytes;
                place++;
            }
            block.packed = offset;
            live.splice(place, 0, { offset, bytes: block.bytes, until: block.end < 0 ? duration : block.end });
        }
    }

    /** Offsets by address, without what no block ever covers. */
    function byAddress(blocks) {
        let covered = 0, top = -1, offset = 0;
        for (const block of [...blocks].sort((a, b) => a.address - b.address)) {
            if (block.address > top) {
                offset = covered;
                covered += block.bytes;
                top = block.address + block.bytes;
                block.placed = offset;
            } else {
                const end = block.address + block.bytes;
                block.placed = covered - (top - block.address);
                if (end > top) {
                    covered += end - top;
                    top = end;
                }
            }
        }
    }

    class Blocks {
        constructor(app, parent) {
            this.app = app;
            this.canvas = element("canvas", { class: "blocks", tabindex: "0", role: "img" });
            this.note = element("p", { class: "faint note" });
            this.tip = element("div", { class: "tip", hidden: "" });
            this.order = element("select", { "aria-label": "How single allocations are placed" },
                element("option", { value: "packed" }, "closely packed"), element("option", { value: "placed" }, "by address"));
            this.order.addEventListener("change", () => this.draw());
            this.title = element("h2", {}, "Single allocations");
            const head = element("div", { class: "blocks-head" }, this.title, element("label", { class: "controls" }, "placed ", this.order));
            this.box = element("div", { class: "blocks-box" }, this.canvas, this.tip);
            parent.append(head, this.note, this.box);
            this.canvas.addEventListener("mousemove", (event) => this._hover(event));
            this.canvas.addEventListener("mouseleave", () => this._leave());
            this.canvas.addEventListener("click", (event) => this.app.selectBlock(this._at(event)));
            this.canvas.addEventListener("keydown", (event) => this._key(event));
            this.hovered = null;
        }

        /** For another device. */
        load() {
            const { app } = this, { device } = app, blocks = device.blocks;
            if (blocks.length && blocks[0].packed === undefined) {
                pack(blocks, app.model.duration);
                byAddress(blocks);
            }
            this.note.textContent = blocks.length ? this._said() : "No single allocation is known here.";
            this.canvas.setAttribute("aria-label", `${blocks.length} single allocations over time. Arrow keys go from one to the next.`);
        }

        /** Which allocations are drawn, and what is only in the sums. */
        _said() {
            const { device } = this.app, [overview, ...finer] = device.charts, size = cuptimem.size;
            const number = `${ink.count(device.blocks.length)} drawn`;
            if (device.charts.every((chart) => chart.leastBlock === 0)) return `${number}: every one.`;
            // A limit that is one byte above the size of many blocks: of those there is a sample.
            const least = (bytes, drawn) => {
                if (!bytes) return "every one";
                const equal = drawn.some((block) => block.bytes === bytes - 1);
                return equal ? `all larger than ${size(bytes - 1)}, and of those of ${size(bytes - 1)} a sample, spread over time` : `those of at least ${size(bytes)}`;
            };
            const survivors = device.blocks.filter((block) => block.end < 0);
            const parts = [`${least(overview.leastBlock, device.blocks)}; of what is alive at the end ${least(overview.leastSurvivor, survivors)}`];
            for (const chart of finer)
                if (chart.leastBlock < overview.leastBlock)
                    parts.push(`from ${ink.time(chart.begin)} to ${ink.time(chart.end)} ${least(chart.leastBlock, device.blocks)}`);
            return `${number}: ${parts.join("; ")}. The others are in the sums above.`;
        }

        draw() {
            const { app } = this, { device, view, inks } = app, key = this.order.value;
            const width = app.chart.width(), height = 230, across = app.chart.plot.over.clientWidth;
            const pen = ink.fit(this.canvas, width, height);
            const duration = app.model.duration;
            const drawn = device.blocks.filter((block) => (block.end < 0 ? duration : block.end) >= view.min && block.begin <= view.max);
            let top = 1, bottom = Infinity;
            for (const block of drawn) {
                top = Math.max(top, block[key] + block.bytes);
                bottom = Math.min(bottom, block[key]);
            }
            if (!Number.isFinite(bottom)) bottom = 0;
            const px = (time) => LEFT + ((time - view.min) / (view.max - view.min)) * across;
            const py = (bytes) => height - 4 - ((bytes - bottom) / (top - bottom)) * (height - 10);
            pen.fillStyle = inks.faint;
            pen.font = "12px system-ui, sans-serif";
            pen.textAlign = "right";
            pen.strokeStyle = inks.grid;
            for (const tick of ink.byteTicks(0, top - bottom, 4)) {
                const y = py(bottom + tick);
                if (key === "packed") pen.fillText(cuptimem.size(tick), LEFT - 11, Math.max(10, y + 4));
                pen.beginPath();
                pen.moveTo(LEFT, y);
                pen.lineTo(LEFT + across, y);
                pen.stroke();
            }
            pen.save();
            pen.beginPath();
            pen.rect(LEFT, 0, across, height);
            pen.clip();
            this.boxes = [];
            const shown = new Set(app.stack.groups.map((group) => group.id)), table = app.model.raw.contributors[app.grouping];
            for (const block of drawn) {
                const left = Math.max(LEFT - 2, px(Math.max(0, block.begin)));
                const right = Math.min(LEFT + across + 2, px(block.end < 0 ? duration : block.end));
                const y = py(block[key] + block.bytes), h = Math.max(0.75, py(block[key]) - y), w = Math.max(1, right - left);
                const group = table[block.contributor];
                const slot = shown.has(group) && app.keep(block.contributor) ? app.model.colourOf(app.grouping, group) : -1;
                const dim = app.highlight !== null && app.highlight !== (slot < 0 ? timelineModel.REST : group);
                pen.globalAlpha = dim ? 0.18 : 1;
                pen.fillStyle = ink.colour(slot, app.dark);
                pen.fillRect(left, y, w, h);
                if (w * h > 6 && app.model.leakOfBlock(block)) {
                    pen.fillStyle = ink.stripes(pen, app.dark ? "#fff" : "#000", 9, 1.2);
                    pen.globalAlpha *= 0.6;
                    pen.fillRect(left, y, w, h);
                }
                if (h > 2.5 && w > 2.5) {
                    pen.globalAlpha = dim ? 0.18 : 0.8;
                    pen.strokeStyle = inks.ground;
                    pen.lineWidth = 0.6;
                    pen.strokeRect(left, y, w, h);
                }
                pen.globalAlpha = 1;
                if (h > 15 && w > 120 && !dim) this._label(pen, block, Math.max(left, LEFT), y, right, h);
                this.boxes.push({ block, left, y, w, h });
            }
            for (const one of [this.hovered, app.block]) {
                const box = one && this.boxes.find(({ block }) => block === one);
                if (!box) continue;
                pen.strokeStyle = inks.ink;
                pen.lineWidth = 2;
                pen.strokeRect(box.left, box.y, box.w, box.h);
            }
            if (app.selection?.kind === "moment") {
                pen.strokeStyle = inks.accent;
                pen.lineWidth = 1.5;
                pen.beginPath();
                pen.moveTo(px(app.selection.time), 0);
                pen.lineTo(px(app.selection.time), height);
                pen.stroke();
            }
            pen.restore();
        }

        _label(pen, block, left, y, right, h) {
            const { app } = this, [label] = app.model.raw.groups.line[app.model.raw.contributors.line[block.contributor]];
            const text = `${cuptimem.size(block.bytes)}  ${label}`, room = Math.min(right, this.canvas.clientWidth) - left - 10;
            pen.font = "11px system-ui, sans-serif";
            pen.textAlign = "left";
            if (pen.measureText(text).width > room) return;
            pen.fillStyle = "#ffffff";
            pen.globalAlpha = 0.82;
            pen.fillRect(left + 3, y + h / 2 - 7, pen.measureText(text).width + 6, 14);
            pen.globalAlpha = 1;
            pen.fillStyle = "#14171b";
            pen.fillText(text, left + 6, y + h / 2 + 4);
            pen.font = "12px system-ui, sans-serif";
        }

        _at(event) {
            const x = event.offsetX, y = event.offsetY;
            for (let i = (this.boxes ?? []).length - 1; i >= 0; i--) {
                const { block, left, y: top, w, h } = this.boxes[i];
                if (x >= left - 1 && x <= left + w + 1 && y >= top - 0.5 && y <= top + h + 0.5) return block;
            }
            return null;
        }

        _hover(event) {
            const block = this._at(event), { app, tip } = this;
            if (block !== this.hovered) {
                this.hovered = block;
                this.draw();
            }
            tip.hidden = !block;
            if (!block) return;
            const facts = app.blockFacts(block);
            tip.replaceChildren(
                element("div", { class: "tip-head" }, `${cuptimem.size(block.bytes)} · ${facts.label}`),
                ...(facts.detail ? [element("div", { class: "code faint tip-code" }, facts.detail)] : []),
                element("div", { class: "tip-row" }, element("span", {}, "born"), element("b", {}, facts.born)),
                element("div", { class: "tip-row" }, element("span", {}, "died"), element("b", {}, facts.died)),
                ...["category", "module"].filter((name) => facts[name] && facts[name] !== "unknown").map((name) => element("div", { class: "tip-row" }, element("span", {}, name), element("b", {}, facts[name]))),
                element("div", { class: "faint" }, "click for its stack"));
            const across = tip.offsetWidth;
            tip.style.left = `${event.offsetX + across + 20 > this.canvas.clientWidth ? Math.max(0, event.offsetX - across - 12) : event.offsetX + 16}px`;
            tip.style.top = `${Math.max(-80, Math.min(event.offsetY + 10, this.canvas.clientHeight - tip.offsetHeight))}px`;
        }

        _leave() {
            this.tip.hidden = true;
            if (this.hovered) {
                this.hovered = null;
                this.draw();
            }
        }

        _key(event) {
            const moves = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
            if (!(event.key in moves) || !this.boxes?.length || event.shiftKey) return;
            event.preventDefault();
            event.stopPropagation();
            const place = this.boxes.findIndex(({ block }) => block === this.app.block);
            const next = Math.max(0, Math.min(this.boxes.length - 1, place + moves[event.key]));
            this.app.selectBlock(this.boxes[next].block);
        }
    }

    return { Blocks, pack, byAddress };
})();
