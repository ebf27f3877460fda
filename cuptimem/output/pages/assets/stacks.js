/* Sums rows of stacks (cuptimem/output/pages/stacks_data.py) into trees. All bytes are whole numbers, so every sum is exact. */
"use strict";

const OWN = 0, PLUMBING = 2; // kinds of frames: the user's own, another library's (1), PyTorch's or Python's

class Stacks {
    constructor(data) {
        this.data = data;
        this.strings = data.strings;
        this.libraries = this.librariesByBytes();
    }

    text(column, index) {
        return this.strings[column[index]];
    }

    /** The number of the measure, or -1. */
    find(what, device, run = 0) {
        return this.data.measures.findIndex((m) => m.what === what && m.device === device && m.run === run);
    }

    /** What a frame is, for tables and tips. */
    frame(index) {
        const { frames } = this.data;
        const file = this.text(frames.file, index), line = frames.line[index];
        const name = this.text(frames.name, index), module = this.text(frames.module, index);
        return {
            index,
            function: name,
            name: module && frames.kind[index] === PLUMBING ? module : name, // "Linear" says more than "Module._call_impl"
            place: file ? `${file}:${line}` : "",
            source: this.text(frames.source, index),
            module,
            library: this.text(frames.library, index),
            kind: frames.kind[index],
        };
    }

    /** Frames of a row, the outermost first. */
    frames(row) {
        const { nodes, rows } = this.data, found = [];
        for (let node = rows.node[row]; node >= 0; node = nodes.parent[node]) found.push(nodes.frame[node]);
        return found.reverse();
    }

    /** The line that a row counts for: the innermost of the user's own, else the innermost; -1 if there is none. */
    userLine(frames) {
        for (let i = frames.length - 1; i >= 0; i--) if (this.data.frames.kind[frames[i]] === OWN) return frames[i];
        return frames.length ? frames[frames.length - 1] : -1;
    }

    /** The innermost line outside PyTorch and Python, else the innermost. */
    nearLine(frames) {
        for (let i = frames.length - 1; i >= 0; i--) if (this.data.frames.kind[frames[i]] !== PLUMBING) return frames[i];
        return frames.length ? frames[frames.length - 1] : -1;
    }

    /** Names of libraries, the user's own code first, then those on stacks of most bytes. */
    librariesByBytes() {
        const { data } = this, sums = new Map(), row = [];
        for (const values of data.values)
            values.row.forEach((number, i) => {
                row[number] = (row[number] ?? 0) + values.bytes[i];
            });
        row.forEach((bytes, number) => {
            for (const name of new Set(this.frames(number).map((f) => data.frames.library[f])))
                sums.set(name, (sums.get(name) ?? 0) + bytes);
        });
        const names = [...sums.entries()].sort((a, b) => b[1] - a[1]).map(([name]) => this.strings[name]).filter(Boolean);
        return names.includes("your code") ? ["your code", ...names.filter((name) => name !== "your code")] : names;
    }

    /** Parts of the module's name; where no walk has seen it, the classes that were called, the outermost first. */
    modulePath(row) {
        const name = this.text(this.data.rows.module, row);
        if (name) return name.split(".");
        return this.frames(row).map((f) => this.text(this.data.frames.module, f)).filter(Boolean);
    }

    /** Steps of a row's path through the tree, from the root on: [key, name, frame or -1]. */
    path(row, how) {
        const { rows } = this.data, all = this.frames(row), label = this.text(rows.label, row);
        let steps;
        if (how.by === "module") {
            // A number is no name: "layers.3" is one step.
            const numbered = (parts, part) => (/^\d+$/.test(part) && parts.length ? [...parts.slice(0, -1), `${parts.at(-1)}.${part}`] : [...parts, part]);
            steps = this.modulePath(row).reduce(numbered, []).map((name) => [`m${name}`, name, -1]);
            if (!steps.length && label !== "*" && all.length) steps.push(["m", "(outside modules)", -1]);
            const near = this.nearLine(all);
            if (near >= 0 && label !== "*") steps.push([near, null, near]);
        } else {
            const kept = how.own ? all.filter((f) => this.data.frames.kind[f] === OWN) : all;
            steps = kept.map((f) => [f, null, f]);
            if (!kept.length && all.length) steps.push(["l", "(no line of your code)", -1]);
        }
        if (label === "*") steps.push(["*", null, -1]);
        else if (label) steps.push([`l${label}`, label, -1]);
        if (how.inverted) steps.reverse();
        const category = this.text(this.data.rows.category, row);
        if (how.by === "category" && category) steps.unshift([`c${category}`, category, -1]);
        return steps;
    }

    /**
     * The tree of some measures. how: by ("stack", "module", "category"), inverted, own (only the user's own lines).
     * A node has bytes and count for each measure, self (bytes of rows that end here), phases, children.
     */
    tree(measures, how) {
        const { data } = this;
        const make = (key, name, frame) => ({
            key, frame, name,
            bytes: measures.map(() => 0), count: measures.map(() => 0), self: measures.map(() => 0),
            smaller: 0, phases: new Map(), below: new Map(), children: [],
        });
        const root = make("", "all", -1);
        const add = (node, i, bytes, count, phase) => {
            node.bytes[i] += bytes;
            node.count[i] += count;
            if (i === measures.length - 1) node.phases.set(phase, (node.phases.get(phase) ?? 0) + bytes);
        };
        measures.forEach((measure, i) => {
            if (measure < 0) return;
            const values = data.values[measure];
            values.row.forEach((row, at) => {
                const bytes = values.bytes[at], count = values.count[at], phase = this.text(data.rows.phase, row);
                let node = root;
                add(node, i, bytes, count, phase);
                for (const [key, name, frame] of this.path(row, how)) {
                    let next = node.below.get(key);
                    if (!next) {
                        next = make(key, name, frame);
                        node.below.set(key, next);
                        node.children.push(next);
                    }
                    node = next;
                    add(node, i, bytes, count, phase);
                    if (key === "*" && i === measures.length - 1) node.smaller += data.rows.smaller[row];
                }
                node.self[i] += bytes;
            });
        });
        this.finish(root);
        return root;
    }

    finish(root) {
        const pending = [root];
        while (pending.length) {
            const node = pending.pop();
            if (node.key === "*") node.name = `(${node.smaller.toLocaleString("en")} smaller stacks)`;
            if (node.frame >= 0) {
                const frame = this.frame(node.frame);
                node.name = frame.place ? `${frame.name}  ${frame.place}` : frame.name;
                Object.assign(node, { title: frame.name, place: frame.place, source: frame.source });
                node.library = frame.library;
                node.kind = frame.kind;
            } else {
                Object.assign(node, { title: node.name, place: "", source: "", library: "", kind: PLUMBING });
            }
            node.below = null;
            node.children.sort((a, b) => b.bytes.at(-1) - a.bytes.at(-1) || (a.name < b.name ? -1 : 1));
            pending.push(...node.children);
        }
    }
}

/** 12.3 %, or "" of nothing. */
function share(part, whole) {
    if (!whole) return "";
    const percent = (100 * part) / whole;
    if (percent > 0 && percent < 0.05) return "< 0.1 %";
    return `${percent >= 9.95 || percent === 0 ? percent.toFixed(0) : percent.toFixed(1)} %`;
}

const plural = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;

/** A small number from a name, always the same. */
function hash(text) {
    let value = 7;
    for (const c of text) value = (value * 31 + c.codePointAt(0)) >>> 0;
    return value;
}

/** Colours by library: the user's own code warm and full, PyTorch grey-blue, Python grey, others by their place. */
const HUES = [165, 285, 95, 330, 195, 55, 255];
const SHADES = 3;

function paint(libraries) {
    const set = (name, light, dark) => document.documentElement.style.setProperty(name, `light-dark(${light}, ${dark})`);
    let other = 0;
    libraries.forEach((name, i) => {
        for (let shade = 0; shade < SHADES; shade++) {
            let light = `hsl(214 24% ${75 + 3 * shade}%)`, dark = `hsl(214 22% ${61 + 4 * shade}%)`;
            if (name === "your code") {
                light = `hsl(${26 + 7 * shade} 95% ${62 + shade}%)`;
                dark = `hsl(${26 + 7 * shade} 84% ${57 + shade}%)`;
            } else if (name === "Python") {
                light = `hsl(220 6% ${82 + 2 * shade}%)`;
                dark = `hsl(220 5% ${64 + 4 * shade}%)`;
            } else if (name !== "PyTorch") {
                const hue = HUES[other % HUES.length];
                light = `hsl(${hue} 40% ${71 + 3 * shade}%)`;
                dark = `hsl(${hue} 34% ${60 + 4 * shade}%)`;
            }
            set(`--library-${i}-${shade}`, light, dark);
        }
        if (!["your code", "PyTorch", "Python"].includes(name)) other++;
    });
}

/** The colour of a node. */
function colour(libraries, node) {
    const i = libraries.indexOf(node.library);
    if (/^[mc]./.test(node.key)) return `var(--frame-module-${hash(node.title) % SHADES})`;
    return i < 0 ? "var(--frame-none)" : `var(--library-${i}-${hash(node.title) % SHADES})`;
}

/** Buttons of which one is chosen, as a radio group. */
function choice(id, label, options, chosen, changed) {
    const { element } = cuptimem, group = element("span", { class: "choice", id, role: "radiogroup", "aria-label": label });
    for (const [value, text] of options) {
        const on = value === chosen;
        const button = element("button", { type: "button", role: "radio", "data-value": value, "aria-checked": String(on), tabindex: on ? 0 : -1 }, text);
        button.addEventListener("click", () => {
            for (const one of group.children) {
                one.setAttribute("aria-checked", String(one === button));
                one.tabIndex = one === button ? 0 : -1;
            }
            changed(value);
        });
        group.append(button);
    }
    radios(group);
    return group;
}

/** The controls of how stacks are summed: by what, in which direction, and whether libraries count. */
function summing(how, changed) {
    const { element } = cuptimem, own = element("input", { type: "checkbox", id: "own" });
    own.addEventListener("change", () => {
        how.own = own.checked;
        changed();
    });
    return [
        choice("by", "Sum by", [["stack", "Python stack"], ["module", "module"], ["category", "category"]], how.by, (value) => {
            how.by = value;
            own.disabled = value === "module";
            changed();
        }),
        choice("direction", "Direction", [["in", "callers first"], ["out", "allocating line first"]], how.inverted ? "out" : "in", (value) => {
            how.inverted = value === "out";
            changed();
        }),
        element("label", { class: "check", title: "Frames of libraries are left out" }, own, " only my code"),
    ];
}

/** Arrow keys in a radio group, as WAI-ARIA has it. */
function radios(group) {
    group.onkeydown = (event) => {
        const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
        if (!step) return;
        const all = [...group.children].filter((one) => !one.disabled);
        const next = all[(all.indexOf(document.activeElement) + step + all.length) % all.length];
        next.focus();
        next.click();
        event.preventDefault();
    };
}

/** Whether a frame has the text in its name, its place, its line of code or its library. */
function matches(node, term) {
    const wanted = term.toLowerCase();
    return [node.name, node.source, node.library].some((text) => text.toLowerCase().includes(wanted));
}
