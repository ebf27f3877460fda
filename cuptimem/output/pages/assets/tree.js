/* The page of `cuptimem tree -o`: the rows of a WAI-ARIA tree, made when their parent is opened. */
"use strict";

const HEAVY = 0.5; // at first a call is open while it has this share of what called it

cuptimem.data().then((data) => {
    if (document.getElementById("app")) new TreePage(new Stacks(data));
});

class TreePage {
    constructor(stacks) {
        this.stacks = stacks;
        this.host = document.getElementById("tree");
        this.measure = 0;
        this.how = { by: "stack", inverted: stacks.data.inverted, own: false };
        document.getElementById("app").hidden = false;
        document.getElementById("static").classList.add("replaced");
        paint(stacks.libraries);
        this.controls();
        this.host.addEventListener("keydown", (event) => this.key(event));
        this.host.addEventListener("click", (event) => {
            const row = event.target.closest(".row");
            if (!row) return;
            this.focus(row.parentElement);
            this.toggle(row.parentElement);
        });
        this.show();
        document.documentElement.dataset.ready = "true";
    }

    controls() {
        const { element } = cuptimem, bar = document.getElementById("bar"), { measures } = this.stacks.data;
        if (measures.length > 1) {
            const select = element("select", { id: "device", "aria-label": "Device" });
            measures.forEach((m, i) => select.append(element("option", { value: i }, `${m.device} (${cuptimem.size(m.bytes)})`)));
            select.addEventListener("change", () => {
                this.measure = Number(select.value);
                this.show();
            });
            bar.append(element("label", {}, "Device ", select));
        }
        const filter = element("input", { type: "search", id: "filter", placeholder: "Filter functions, files, code", "aria-label": "Filter" });
        filter.addEventListener("input", () => this.filter(filter.value.trim()));
        const all = element("button", { type: "button", id: "close" }, "Close all");
        all.addEventListener("click", () => {
            for (const item of this.host.querySelectorAll('[aria-expanded="true"]')) this.close(item);
        });
        const heavy = element("button", { type: "button", id: "heavy" }, "Heaviest path");
        heavy.addEventListener("click", () => {
            filter.value = "";
            this.filter("");
        });
        bar.append(...summing(this.how, () => this.show()), element("span", { class: "gap" }), filter, heavy, all);
        document.addEventListener("keydown", (event) => {
            if (event.key === "/" && !["INPUT", "SELECT"].includes(document.activeElement.tagName)) {
                event.preventDefault();
                filter.focus();
            } else if (event.key === "Escape" && document.activeElement === filter) heavy.click();
        });
        this.term = "";
    }

    show() {
        const m = this.stacks.data.measures[this.measure];
        this.root = this.stacks.tree([this.measure], this.how);
        Object.assign(this.root, { title: `all of ${m.device}`, place: m.words, whole: true });
        this.draw();
    }

    filter(term) {
        this.term = term;
        this.draw();
    }

    /** Only what has the filter's text, with its callers and what it calls; at first open along the heaviest path. */
    draw() {
        const found = this.term ? this.marked() : null;
        this.kept = found && found.kept;
        this.hits = found && found.hits;
        this.host.replaceChildren(this.item(this.root, 1, 1, 1));
        const m = this.stacks.data.measures[this.measure];
        let said = `${m.device}: ${cuptimem.size(m.bytes)} in ${plural(m.count, "block")}, ${m.words}`;
        if (found) said += ` · “${this.term}”: ${cuptimem.size(found.bytes)}, ${share(found.bytes, m.bytes) || "0 %"}`;
        document.getElementById("said").textContent = said;
        const first = this.host.firstElementChild;
        first.setAttribute("tabindex", "0");
        this.open(first);
        if (found) this.openTo(first);
        else for (let item = first; item; item = this.openHeavy(item));
    }

    marked() {
        const hits = new Set(), kept = new Set();
        let bytes = 0;
        const pending = [[this.root, null, false]];
        while (pending.length) {
            const [node, chain, inside] = pending.pop();
            const hit = !node.whole && matches(node, this.term);
            if (hit) {
                hits.add(node);
                if (!inside) bytes += node.bytes[0];
                for (let up = chain; up; up = up[1]) {
                    if (kept.has(up[0])) break;
                    kept.add(up[0]);
                }
            }
            if (hit || inside) kept.add(node);
            for (const child of node.children) pending.push([child, [node, chain], inside || hit]);
        }
        return { hits, kept, bytes };
    }

    below(node) {
        return this.kept ? node.children.filter((child) => this.kept.has(child)) : node.children;
    }

    item(node, level, place, count) {
        const { element, size } = cuptimem, whole = this.root.bytes[0], children = this.below(node);
        const own = node.kind === 0 && node.frame >= 0;
        const bar = element("span", { class: "bar" });
        bar.style.width = `${whole ? (100 * node.bytes[0]) / whole : 0}%`;
        const swatch = element("span", { class: "swatch" });
        swatch.style.background = colour(this.stacks.libraries, node);
        const call = element("span", { class: "call" }, element("span", { class: "mark", "aria-hidden": "true" }), swatch,
            element("span", { class: own ? "name own" : "name" }, node.title), " ", element("span", { class: "faint" }, node.place), " ", element("code", {}, node.source));
        call.style.paddingInlineStart = `${Math.min(level - 1, 60) * 16}px`;
        const row = element("div", { class: "row" },
            element("span", { class: "number strong" }, size(node.bytes[0])),
            element("span", { class: "number part" }, bar, element("span", {}, share(node.bytes[0], whole))),
            element("span", { class: "number" }, node.count[0].toLocaleString("en")), call);
        row.title = `${node.bytes[0].toLocaleString("en")} bytes`;
        const made = element("div", {
            role: "treeitem", tabindex: -1, class: this.hits?.has(node) ? "item hit" : "item",
            "aria-level": level, "aria-posinset": place, "aria-setsize": count,
            "aria-label": [node.title, node.place, size(node.bytes[0]), share(node.bytes[0], whole), plural(node.count[0], "block")].filter(Boolean).join(", "),
        }, row);
        if (children.length) made.setAttribute("aria-expanded", "false");
        made.node = node;
        return made;
    }

    open(item) {
        if (item.getAttribute("aria-expanded") !== "false") return;
        item.setAttribute("aria-expanded", "true");
        let group = item.querySelector(":scope > [role=group]");
        if (!group) {
            const level = Number(item.getAttribute("aria-level")) + 1, children = this.below(item.node);
            group = cuptimem.element("div", { role: "group" }, ...children.map((node, i) => this.item(node, level, i + 1, children.length)));
            item.append(group);
        }
        group.hidden = false;
    }

    close(item) {
        if (item.getAttribute("aria-expanded") !== "true") return;
        item.setAttribute("aria-expanded", "false");
        item.querySelector(":scope > [role=group]").hidden = true;
        if (item.contains(document.activeElement)) this.focus(item);
    }

    toggle(item) {
        if (item.getAttribute("aria-expanded") === "true") this.close(item);
        else this.open(item);
    }

    /** Opens the heaviest call below an item, if it has most of its bytes; that one, or nothing. */
    openHeavy(item) {
        const first = item.querySelector(":scope > [role=group] > .item");
        if (!first || first.node.bytes[0] < HEAVY * item.node.bytes[0]) return null;
        this.open(first);
        return first;
    }

    /** Opens the callers of what was found, of hundreds at most. */
    openTo(first) {
        const pending = [first];
        for (let opened = 0; pending.length && opened < 400; opened++) {
            const item = pending.shift();
            if (this.hits.has(item.node)) continue;
            this.open(item);
            pending.push(...item.querySelectorAll(":scope > [role=group] > .item"));
        }
    }

    shown() {
        return [...this.host.querySelectorAll(".item")].filter((item) => item.offsetParent !== null);
    }

    focus(item) {
        for (const one of this.host.querySelectorAll('.item[tabindex="0"]')) one.setAttribute("tabindex", "-1");
        item.setAttribute("tabindex", "0");
        item.focus();
    }

    key(event) {
        const item = event.target.closest(".item");
        if (!item || event.ctrlKey || event.metaKey || event.altKey) return;
        const expanded = item.getAttribute("aria-expanded"), shown = this.shown(), at = shown.indexOf(item);
        let next;
        if (event.key === "ArrowDown") next = shown[at + 1];
        else if (event.key === "ArrowUp") next = shown[at - 1];
        else if (event.key === "Home") next = shown[0];
        else if (event.key === "End") next = shown.at(-1);
        else if (event.key === "ArrowRight") {
            if (expanded === "false") this.open(item);
            else if (expanded === "true") next = item.querySelector(":scope > [role=group] > .item");
        } else if (event.key === "ArrowLeft") {
            if (expanded === "true") this.close(item);
            else next = item.parentElement.closest(".item");
        } else if (event.key === "Enter" || event.key === " ") this.toggle(item);
        else if (event.key === "*") for (const one of item.parentElement.children) this.open(one);
        else if (/^[\p{L}_]$/u.test(event.key)) {
            const order = [...shown.slice(at + 1), ...shown.slice(0, at)];
            next = order.find((one) => one.node.title.toLowerCase().startsWith(event.key.toLowerCase()));
        } else return;
        if (next) this.focus(next);
        event.preventDefault();
    }
}
