/* The page of `cuptimem table -o`: rows summed by one property, sorted, filtered, copied. */
"use strict";

const SHOWN = 500; // rows at first; more by a button
const GROUPINGS = { line: "line", "library-line": "library's line", function: "function", file: "file", module: "module", category: "category", operator: "operator", phase: "phase", library: "library", stack: "whole stack" };
const PLACES = ["line", "library-line", "function", "file"]; // of the program's code
const COLUMNS = [["bytes", "bytes"], ["share", "share"], ["count", "blocks"], ["mean", "mean"], ["key", ""], ["source", "code"]];

cuptimem.data().then((data) => {
    if (document.getElementById("app")) new TablePage(new Stacks(data));
});

class TablePage {
    constructor(stacks) {
        this.stacks = stacks;
        this.measure = 0;
        const { by, order, depth } = stacks.data;
        this.depth = depth ?? undefined;
        this.by = GROUPINGS[by] ? by : "line";
        this.sort = { blocks: "count", name: "key" }[order] ?? order;
        this.down = this.sort !== "key";
        this.term = "";
        this.limit = SHOWN;
        document.getElementById("app").hidden = false;
        document.getElementById("static").classList.add("replaced");
        this.controls();
        this.group();
        document.documentElement.dataset.ready = "true";
    }

    controls() {
        const { element } = cuptimem, bar = document.getElementById("bar"), { measures } = this.stacks.data;
        const select = (id, label, options, chosen, changed) => {
            const made = element("select", { id });
            for (const [value, text] of options) made.append(element("option", { value }, text));
            made.value = chosen;
            made.addEventListener("change", () => changed(made.value));
            bar.append(element("label", {}, `${label} `, made));
        };
        if (measures.length > 1)
            select("device", "Device", measures.map((m, i) => [String(i), `${m.device} (${cuptimem.size(m.bytes)})`]), "0", (value) => {
                this.measure = Number(value);
                this.group();
            });
        select("by", "Sum by", Object.entries(GROUPINGS), this.by, (value) => {
            this.by = value;
            depth.disabled = value !== "module";
            this.group();
        });
        const depth = element("input", { type: "number", id: "depth", min: 1, placeholder: "all", title: "The first so many parts of a module's name" });
        depth.value = this.depth ?? "";
        depth.disabled = this.by !== "module";
        depth.addEventListener("input", () => {
            this.depth = Number(depth.value) >= 1 ? Number(depth.value) : undefined;
            this.group();
        });
        bar.append(element("label", {}, "Depth ", depth));
        const filter = element("input", { type: "search", id: "filter", placeholder: "Filter rows", "aria-label": "Filter rows" });
        filter.addEventListener("input", () => {
            this.term = filter.value.trim().toLowerCase();
            this.limit = SHOWN;
            this.draw();
        });
        const copy = element("button", { type: "button", id: "copy" }, "Copy as CSV");
        copy.addEventListener("click", async () => {
            copy.textContent = (await copyText(this.csv())) ? "Copied" : "Not allowed here";
            setTimeout(() => (copy.textContent = "Copy as CSV"), 2000);
        });
        bar.append(element("span", { class: "gap" }), filter, copy);
        document.addEventListener("keydown", (event) => {
            if (event.key === "/" && !["INPUT", "SELECT"].includes(document.activeElement.tagName)) {
                event.preventDefault();
                filter.focus();
            }
        });
    }

    /** The key of a row, and the code beside it. */
    key(row) {
        const { stacks } = this, { data } = stacks, frames = stacks.frames(row), label = stacks.text(data.rows.label, row);
        if (this.by === "phase") return [stacks.text(data.rows.phase, row) || label || "(unknown)", ""];
        if (this.by === "category") return [stacks.text(data.rows.category, row) || label || "(unknown)", ""];
        if (label === "*") return ["(smaller stacks)", ""];
        if (this.by === "operator") return [stacks.text(data.rows.operator, row) || label, ""];
        if (this.by === "module" && !stacks.text(data.rows.category, row)) return [label, ""]; // of no block that is known
        if (this.by === "module") return [stacks.modulePath(row).slice(0, this.depth).join(stacks.text(data.rows.module, row) ? "." : " > ") || "(outside modules)", ""];
        if (!frames.length) return [label, ""];
        if (this.by === "stack") return [frames.map((f) => stacks.frame(f).place || stacks.frame(f).name).reverse().join(" < "), ""];
        if (this.by === "library") return [stacks.text(data.frames.library, stacks.nearLine(frames)), ""];
        const user = stacks.userLine(frames);
        let line = user;
        if (this.by === "library-line") line = this.libraryLine(frames, user);
        const one = stacks.frame(line), file = stacks.text(data.frames.file, line);
        if (this.by === "function") return [`${one.function} (${file})`, ""];
        if (this.by === "file") return [file, ""];
        return [one.place || one.name, one.source];
    }

    /** The library's line below the user's: the innermost outside PyTorch and Python, else the innermost. */
    libraryLine(frames, user) {
        const { kind } = this.stacks.data.frames, below = frames.slice(frames.lastIndexOf(user) + 1);
        if (kind[user] !== OWN) return this.stacks.nearLine(frames);
        if (!below.length) return user;
        return below.findLast((f) => kind[f] !== PLUMBING) ?? below.at(-1);
    }

    group() {
        const found = new Map(), values = this.stacks.data.values[this.measure];
        values.row.forEach((row, at) => {
            const [key, source] = this.key(row), nowhere = PLACES.includes(this.by) && !this.stacks.frames(row).length;
            const one = found.get(key) ?? { key, source, nowhere, bytes: 0, count: 0 };
            one.bytes += values.bytes[at];
            one.count += values.count[at];
            found.set(key, one);
        });
        const whole = this.stacks.data.measures[this.measure].bytes;
        this.rows = [...found.values()];
        for (const row of this.rows) {
            row.mean = row.count ? row.bytes / row.count : 0;
            row.share = whole ? row.bytes / whole : 0;
        }
        this.limit = SHOWN;
        this.draw();
    }

    visible() {
        const fits = (row) => !this.term || row.key.toLowerCase().includes(this.term) || row.source.toLowerCase().includes(this.term);
        const order = (a, b) => {
            const [x, y] = [a[this.sort], b[this.sort]];
            const way = typeof x === "string" ? (x < y ? -1 : x > y ? 1 : 0) : x - y;
            return a.nowhere - b.nowhere || (this.down ? -way : way) || (a.key < b.key ? -1 : 1); // behind places what has none
        };
        return this.rows.filter(fits).sort(order);
    }

    columns() {
        return this.rows.some((row) => row.source) ? COLUMNS : COLUMNS.slice(0, -1);
    }

    /** What a library did below a line. */
    parts(row) {
        const { element } = cuptimem, parts = this.stacks.data.parts[this.measure];
        if (this.by !== "line" || !Object.hasOwn(parts, row.key)) return [];
        return parts[row.key].map((part) => element("span", { class: "below" }, part));
    }

    draw() {
        const { element, size } = cuptimem, m = this.stacks.data.measures[this.measure], rows = this.visible(), columns = this.columns();
        const sum = (name) => rows.reduce((total, row) => total + row[name], 0), bytes = sum("bytes"), count = sum("count");
        const number = (text) => element("td", { class: "number" }, text);
        const cells = (row) => [number(size(row.bytes)), number(share(row.bytes, m.bytes)), number(row.count.toLocaleString("en")), number(size(row.mean)), element("td", {}, row.key, ...this.parts(row)), ...(columns.length > 5 ? [element("td", {}, element("code", {}, row.source))] : [])];
        const head = columns.map(([name, title]) => {
            const on = this.sort === name, button = element("button", { type: "button", class: "sort", "data-sort": name }, title || GROUPINGS[this.by]);
            button.addEventListener("click", () => {
                this.down = on ? !this.down : !["key", "source"].includes(name);
                this.sort = name;
                this.draw();
                document.querySelector(`[data-sort="${name}"]`).focus();
            });
            return element("th", { class: ["key", "source"].includes(name) ? "" : "number", scope: "col", "aria-sort": on ? (this.down ? "descending" : "ascending") : "none" }, button);
        });
        const foot = element("tr", {}, number(size(bytes)), number(share(bytes, m.bytes)), number(count.toLocaleString("en")), number(count ? size(bytes / count) : ""),
            element("td", { colspan: columns.length - 4 }, this.term ? `${plural(rows.length, "row")} of ${this.rows.length.toLocaleString("en")}` : `all ${plural(rows.length, "row")}`));
        foot.title = `${bytes.toLocaleString("en")} bytes`;
        const host = document.getElementById("table");
        host.replaceChildren(element("table", { class: "sortable" }, element("thead", {}, element("tr", {}, ...head)), element("tfoot", {}, foot), element("tbody", {}, ...rows.slice(0, this.limit).map((row) => element("tr", {}, ...cells(row))))));
        if (rows.length > this.limit) {
            const more = element("button", { type: "button", id: "more" }, `Show ${Math.min(SHOWN, rows.length - this.limit).toLocaleString("en")} of ${(rows.length - this.limit).toLocaleString("en")} more rows`);
            more.addEventListener("click", () => {
                this.limit += SHOWN;
                this.draw();
            });
            host.append(more);
        }
        document.getElementById("said").textContent = `${m.device}: ${size(m.bytes)} in ${plural(m.count, "block")}, ${m.words}${this.term ? ` · filtered: ${size(bytes)}, ${share(bytes, m.bytes) || "0 %"}` : ""}`;
    }

    csv() {
        const columns = this.columns(), text = (value) => {
            // A spreadsheet would run a name that begins as a formula.
            const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
            return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
        };
        const rows = this.visible().map((row) => columns.map(([name]) => text(name === "share" ? row.share.toFixed(6) : name === "mean" ? Math.round(row.mean) : row[name])));
        return [columns.map(([, title]) => text(title || this.by)), ...rows].map((row) => row.join(",")).join("\r\n") + "\r\n";
    }
}

async function copyText(text) {
    try {
        await navigator.clipboard.writeText(text);
        return true;
    } catch {
        // Where the page has no permission, the old way.
        const area = cuptimem.element("textarea");
        area.value = text;
        document.body.append(area);
        area.select();
        const done = document.execCommand("copy");
        area.remove();
        return done;
    }
}
