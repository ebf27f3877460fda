/* A flame graph (d3-flame-graph) with a tip, search, keys and a trail of callers. What it draws comes from stacks.js. */
"use strict";

const ROW = 20; // pixels

class Flame {
    /**
     * host: the element it is drawn in. trail, said: elements for the callers of what is zoomed, and for news.
     * value(node): its width. colour(node). tip(node, whole): elements. onZoom(node).
     */
    constructor({ host, trail, said, value, colour, tip, describe, onZoom }) {
        Object.assign(this, { host, trail, said, value, colour, tip, describe, onZoom });
        this.term = "";
        this.floating = cuptimem.element("div", { class: "tip", role: "presentation", hidden: "" });
        document.body.append(this.floating);
        host.addEventListener("keydown", (event) => this.key(event));
        host.addEventListener("mousemove", (event) => this.hover(event));
        host.addEventListener("mouseleave", () => this.hideTip());
        host.addEventListener("focusin", () => this.focused());
        host.addEventListener("focusout", () => this.hideTip());
        this.seen = host.clientWidth;
        new ResizeObserver(() => {
            if (this.root && host.clientWidth !== this.seen) this.draw(this.root);
        }).observe(host);
        window.addEventListener("beforeprint", () => this.hideTip());
    }

    /** Draws a tree, without a zoom. */
    draw(root) {
        this.root = root;
        this.zoomed = null;
        this.seen = this.host.clientWidth;
        this.host.replaceChildren();
        const nested = (node) => {
            node.value = this.value(node);
            node.hide = node.fade = false;
            return node;
        };
        const pending = [root];
        while (pending.length) pending.push(...nested(pending.pop()).children);
        this.width = Math.max(320, this.host.clientWidth);
        this.chart = flamegraph
            .default()
            .width(this.width)
            .cellHeight(ROW)
            .inverted(true)
            .minFrameSize(0.7)
            .transitionDuration(matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 180)
            .sort(false)
            .resetHeightOnZoom(true)
            .setColorMapper((d) => (d.highlight ? "var(--frame-found)" : this.colour(d.data)))
            .label(() => "")
            .setSearchMatch((d, term) => matches(d.data, term))
            .setSearchHandler(() => {})
            .onClick((d) => this.afterZoom(d));
        // Its own tooltip would be text in a <title>; ours is shown for the keyboard, too.
        const none = () => {};
        none.show = none.hide = none.destroy = () => {};
        this.chart.tooltip(none);
        d3.select(this.host).datum(root).call(this.chart);
        // It lets new frames grow, and names them later, whatever its transitionDuration: whole at once, for a picture
        // may be taken of them.
        for (const g of this.host.querySelectorAll("g.frame")) {
            d3.select(g).select("rect").interrupt().attr("width", g.getAttribute("width"));
            d3.select(g).select(".d3-flame-graph-label").interrupt().text(g.getAttribute("name"));
        }
        this.zoomed = this.top();
        if (this.term) this.chart.search(this.term);
        this.decorate();
        this.news();
    }

    top() {
        return d3.select(this.host).datum();
    }

    afterZoom(d) {
        this.zoomed = d;
        this.hideTip();
        this.decorate();
        this.news();
        if (this.host.contains(document.activeElement) || document.activeElement === document.body) this.focus(d, false);
        this.onZoom?.(d.data);
    }

    zoomTo(d) {
        this.chart.zoomTo(d);
    }

    reset() {
        if (this.chart) this.chart.resetZoom();
    }

    /** Marks what has the text; says what share of what is shown that is. */
    search(term) {
        this.term = term.trim();
        if (this.term) this.chart.search(this.term);
        else this.chart.clear();
        this.decorate();
        this.news();
    }

    /** Bytes below the zoomed frame that are in a frame with the text, each counted once. */
    matched() {
        let sum = 0;
        const pending = [this.zoomed.data];
        while (pending.length) {
            const node = pending.pop();
            if (matches(node, this.term)) sum += this.value(node);
            else pending.push(...node.children);
        }
        return sum;
    }

    news() {
        const node = this.zoomed.data, whole = this.value(this.root), here = this.value(node);
        const parts = [];
        if (node !== this.root) parts.push(`${node.title}: ${cuptimem.size(here)}, ${share(here, whole)} of all`);
        if (this.term) {
            const found = this.matched();
            parts.push(`“${this.term}”: ${cuptimem.size(found)}, ${share(found, here) || "0 %"} of what is shown`);
        }
        this.said.textContent = parts.join(" · ");
        if (!this.trail) return;
        const ancestors = this.zoomed.ancestors().reverse();
        this.trail.replaceChildren(
            ...(ancestors.length < 2
                ? []
                : ancestors.map((d) => {
                      const button = cuptimem.element("button", { class: "crumb", type: "button" }, d.data.title);
                      button.addEventListener("click", () => this.zoomTo(d));
                      return button;
                  })),
        );
    }

    /** What d3-flame-graph does not do: names for screen readers, one frame in the order of tabs, paper. */
    decorate() {
        const svg = this.host.querySelector("svg");
        // It leaves room for a title, which we have elsewhere.
        const depth = Math.max(...[...svg.querySelectorAll("g.frame")].map((g) => g.__data__.depth));
        svg.setAttribute("height", (depth + 1) * ROW + 2);
        svg.setAttribute("viewBox", `0 0 ${this.width} ${svg.getAttribute("height")}`);
        svg.setAttribute("aria-label", "Flame graph");
        for (const g of svg.querySelectorAll("g.frame")) {
            const node = g.__data__.data;
            g.setAttribute("role", "button");
            g.setAttribute("tabindex", g.__data__ === this.zoomed ? "0" : "-1");
            g.setAttribute("aria-label", this.describe(node, this.root));
            g.classList.toggle("own", node.kind === 0);
            g.classList.toggle("found", Boolean(g.__data__.highlight));
            g.classList.toggle("plain", this.colour(node) === "var(--frame-none)");
        }
    }

    element(d) {
        return [...this.host.querySelectorAll("g.frame")].find((g) => g.__data__ === d);
    }

    focus(d, visible = true) {
        const next = this.element(d);
        if (!next) return;
        for (const g of this.host.querySelectorAll('g[tabindex="0"]')) g.setAttribute("tabindex", "-1");
        next.setAttribute("tabindex", "0");
        next.focus({ preventScroll: !visible });
    }

    key(event) {
        const d = event.target.__data__;
        if (!d || event.ctrlKey || event.metaKey || event.altKey) return;
        const shown = (one) => one && one.value > 0 && this.element(one);
        const beside = (step) => {
            // Next to it on the same level, whoever called it.
            const level = this.top().descendants().filter((one) => one.depth === d.depth && shown(one));
            level.sort((a, b) => a.x0 - b.x0);
            return level[level.indexOf(d) + step];
        };
        const moves = {
            ArrowDown: () => (d.children ?? []).find(shown),
            ArrowUp: () => d.parent,
            ArrowRight: () => beside(1),
            ArrowLeft: () => beside(-1),
            Home: () => this.top(),
        };
        if (moves[event.key]) {
            const next = moves[event.key]();
            if (next) this.focus(next);
        } else if (event.key === "Enter" || event.key === " ") this.zoomTo(d);
        else if (event.key === "Escape") this.reset();
        else return;
        event.preventDefault();
    }

    hover(event) {
        const g = event.target.closest?.("g.frame");
        if (g) this.showTip(g, event.clientX, event.clientY);
        else this.hideTip();
    }

    focused() {
        const g = document.activeElement;
        if (!g.__data__ || !g.matches(":focus-visible")) return;
        const box = g.getBoundingClientRect();
        this.showTip(g, Math.max(8, box.left), box.bottom);
    }

    showTip(g, x, y) {
        const { floating } = this;
        if (this.tipOf !== g.__data__) {
            floating.replaceChildren(...this.tip(g.__data__.data, this.root));
            this.tipOf = g.__data__;
        }
        floating.hidden = false;
        const { offsetWidth: width, offsetHeight: height } = floating;
        floating.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - width - 8))}px`;
        floating.style.top = `${y + 18 + height > innerHeight ? Math.max(4, y - height - 12) : y + 18}px`;
    }

    hideTip() {
        this.floating.hidden = true;
        this.tipOf = null;
    }
}
