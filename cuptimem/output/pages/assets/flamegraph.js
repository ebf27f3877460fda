/* The page of `cuptimem flamegraph`: which bytes, how they are summed, the legend, the lines below. */
"use strict";

const LINES = 25;

cuptimem.data().then((data) => {
    if (document.getElementById("app")) new Page(new Stacks(data));
});

class Page {
    constructor(stacks) {
        this.stacks = stacks;
        const { measures } = stacks.data;
        const used = (m) => m.bytes > 0;
        const first = measures.find((m) => m.what === "peak" && used(m)) ?? measures.find(used);
        this.device = first.device;
        this.what = first.what;
        this.how = { by: "stack", inverted: false, own: false };
        document.getElementById("app").hidden = false;
        document.getElementById("static").classList.add("replaced");
        paint(stacks.libraries);
        this.flame = new Flame({
            host: document.getElementById("chart"),
            trail: document.getElementById("trail"),
            said: document.getElementById("said"),
            value: (node) => node.bytes[0],
            colour: (node) => colour(stacks.libraries, node),
            tip: (node, root) => this.tip(node, root),
            describe: (node, root) => this.describe(node, root),
            onZoom: (node) => this.lines(node),
        });
        this.controls();
        this.show();
        document.documentElement.dataset.ready = "true";
    }

    controls() {
        const { element } = cuptimem, bar = document.getElementById("bar");
        const devices = [...new Set(this.stacks.data.measures.filter((m) => m.bytes > 0).map((m) => m.device))];
        const select = element("select", { id: "device", "aria-label": "Device" });
        for (const name of devices) select.append(element("option", { value: name }, name));
        select.value = this.device;
        select.addEventListener("change", () => {
            this.device = select.value;
            this.show();
        });
        if (devices.length > 1) bar.append(element("label", {}, "Device ", select));
        bar.append(...summing(this.how, () => this.show()));
        const search = element("input", { type: "search", id: "search", placeholder: "Search functions, files, code", "aria-label": "Search" });
        search.addEventListener("input", () => this.flame.search(search.value));
        const reset = element("button", { type: "button", id: "reset" }, "Show all");
        reset.addEventListener("click", () => this.flame.reset());
        bar.append(element("span", { class: "gap" }), search, reset);
        document.addEventListener("keydown", (event) => {
            if (event.key === "/" && !["INPUT", "SELECT"].includes(document.activeElement.tagName)) {
                event.preventDefault();
                search.focus();
            } else if (event.key === "Escape" && document.activeElement === search) {
                search.value = "";
                this.flame.search("");
            } else if (event.key === "Escape" && !document.activeElement.closest?.("#chart")) this.flame.reset();
        });
    }

    measure() {
        return this.stacks.data.measures[this.stacks.find(this.what, this.device)];
    }

    show() {
        const { stacks } = this;
        this.whats();
        this.root = stacks.tree([stacks.find(this.what, this.device)], this.how);
        const m = this.measure();
        Object.assign(this.root, { name: `${m.device}: ${cuptimem.size(m.bytes)}, ${m.words}`, title: `all of ${m.device}` });
        this.flame.draw(this.root);
        this.legend();
        this.lines(this.root);
    }

    /** A tab for each kind of bytes, with its size. */
    whats() {
        const { element } = cuptimem, nav = document.getElementById("whats");
        const here = this.stacks.data.measures.filter((m) => m.device === this.device);
        if (!(this.measure()?.bytes > 0)) this.what = (here.find((m) => m.bytes > 0) ?? here[0]).what;
        const focused = nav.contains(document.activeElement);
        nav.replaceChildren(
            ...here.map((m) => {
                const on = m.what === this.what;
                const button = element(
                    "button",
                    {
                        type: "button", role: "radio", class: "what", "data-what": m.what, "aria-checked": String(on),
                        tabindex: on ? 0 : -1, title: m.meaning, disabled: m.bytes > 0 ? null : "",
                    },
                    element("span", {}, m.title),
                    element("b", {}, m.bytes > 0 ? cuptimem.size(m.bytes) : "nothing"),
                );
                button.addEventListener("click", () => this.choose(m.what));
                return button;
            }),
        );
        const { title, meaning } = this.measure();
        document.getElementById("meaning").textContent = `${title}: ${meaning}.`;
        radios(nav);
        if (focused) nav.querySelector('[aria-checked="true"]').focus();
    }

    choose(what) {
        this.what = what;
        this.show();
    }

    tip(node, root) {
        const { element, size } = cuptimem;
        const bytes = node.bytes[0], count = node.count[0], whole = root.bytes[0];
        const rows = [element("strong", {}, node.title)];
        if (node.place) rows.push(element("div", { class: "faint" }, `${node.place}${node.library ? ` · ${node.library}` : ""}`));
        if (node.source) rows.push(element("code", {}, node.source));
        rows.push(element("div", { class: "sum" }, element("b", {}, size(bytes)), ` ${share(bytes, whole)} · ${plural(count, "block")}${count > 1 ? ` of ${size(bytes / count)} on average` : ""}`));
        rows.push(element("div", { class: "faint" }, `${bytes.toLocaleString("en")} bytes`));
        if (node.self[0] && node.children.length) rows.push(element("div", {}, `${size(node.self[0])} of it by this line itself`));
        const phases = [...node.phases].filter(([name]) => name).sort((a, b) => b[1] - a[1]);
        if (phases.length) rows.push(element("div", { class: "faint" }, phases.map(([name, part]) => `${name} ${share(part, bytes)}`).join(", ")));
        return rows;
    }

    describe(node, root) {
        const what = [node.title, node.place, `${cuptimem.size(node.bytes[0])}, ${share(node.bytes[0], root.bytes[0])}`, plural(node.count[0], "block")];
        return what.filter(Boolean).join(", ");
    }

    legend() {
        const { element } = cuptimem, { libraries } = this.stacks;
        const present = new Set(), pending = [this.root];
        while (pending.length) {
            const node = pending.pop();
            present.add(node.library);
            pending.push(...node.children);
        }
        const modules = element("span", { class: "swatch" });
        modules.style.background = "var(--frame-module-1)";
        document.getElementById("legend").replaceChildren(
            ...(this.how.by === "module" ? [element("span", { class: "chip" }, modules, "modules")] : []),
            ...libraries.map((name, i) => [name, i]).filter(([name]) => present.has(name)).map(([name, i]) => {
                const swatch = element("span", { class: "swatch" });
                swatch.style.background = `var(--library-${i}-1)`;
                const button = element("button", { type: "button", class: "chip", title: `Search ${name}` }, swatch, name);
                button.addEventListener("click", () => {
                    const search = document.getElementById("search");
                    search.value = search.value === name ? "" : name;
                    this.flame.search(search.value);
                });
                return button;
            }),
        );
    }

    /** The lines of what is shown, the largest first: of the user's own code where there is some on the stack. */
    lines(node) {
        const { element, size } = cuptimem, found = new Map();
        const add = (key, of, bytes, count) => {
            const row = found.get(key) ?? { of, bytes: 0, count: 0 };
            found.set(key, { of, bytes: row.bytes + bytes, count: row.count + count });
        };
        const m = this.measure(), values = this.stacks.data.values[this.stacks.find(this.what, this.device)];
        const path = pathTo(this.root, node);
        values.row.forEach((row, at) => {
            const steps = this.stacks.path(row, this.how);
            if (path.some((key, i) => steps[i]?.[0] !== key)) return;
            const line = this.stacks.userLine(this.stacks.frames(row));
            const label = this.stacks.text(this.stacks.data.rows.label, row);
            if (label === "*") add("*", { name: "(smaller stacks)", place: "", source: "" }, values.bytes[at], values.count[at]);
            else if (line < 0) add(label, { name: label, place: "", source: "" }, values.bytes[at], values.count[at]);
            else add(line, this.stacks.frame(line), values.bytes[at], values.count[at]);
        });
        const all = [...found.values()].sort((a, b) => b.bytes - a.bytes), lines = all.filter((row) => row.of.place);
        const rest = lines.slice(LINES), sorted = [...lines.slice(0, LINES), ...all.filter((row) => !row.of.place)];
        if (rest.length) {
            const sum = (name) => rest.reduce((total, row) => total + row[name], 0);
            sorted.push({ of: { name: `(${plural(rest.length, "more line")})`, place: "", source: "" }, bytes: sum("bytes"), count: sum("count") });
        }
        const whole = m.bytes, cell = (text, kind = "") => element("td", { class: kind }, text);
        const body = sorted.map(({ of, bytes, count }) =>
            element("tr", {}, cell(size(bytes), "number"), cell(share(bytes, whole), "number"), cell(count.toLocaleString("en"), "number"),
                cell(of.place), cell(of.name), element("td", {}, element("code", {}, of.source))));
        const here = node === this.root ? `${m.title} on ${m.device}` : `Below ${node.title}`;
        const head = ["bytes", "share", "blocks", "line", "function", "code"];
        document.getElementById("lines").replaceChildren(
            element("h2", {}, `${here}: ${size(node.bytes[0])} in ${plural(node.count[0], "block")}, by line`),
            element("table", {}, element("thead", {}, element("tr", {}, ...head.map((name, i) => element("th", { class: i < 3 ? "number" : "" }, name)))), element("tbody", {}, ...body)),
        );
    }
}

/** Keys from the root's children down to a node. */
function pathTo(root, wanted) {
    const pending = [[root, []]];
    while (pending.length) {
        const [node, keys] = pending.pop();
        if (node === wanted) return keys;
        for (const child of node.children) pending.push([child, [...keys, child.key]]);
    }
    return [];
}
