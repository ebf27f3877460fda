/* What all pages share: the data that is embedded, and how numbers are written (as in cuptimem/output/text/words.py). */
"use strict";

const cuptimem = {
    /** The page's data: JSON, gzip, base64. */
    async data() {
        const packed = Uint8Array.from(atob(document.getElementById("data").textContent), (c) => c.charCodeAt(0));
        const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
        return JSON.parse(await new Response(stream).text());
    },

    /** Bytes as people read them, in powers of 1024. */
    size(bytes) {
        const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let value = Math.abs(bytes), unit = 0;
        while (unit < units.length - 1 && value >= (unit === 0 ? 1024 : 1023.95)) {
            value /= 1024;
            unit++;
        }
        return `${bytes < 0 ? "-" : ""}${value.toFixed(unit === 0 ? 0 : 1)} ${units[unit]}`;
    },

    /** An element with text, which is never markup. */
    element(name, attributes = {}, ...children) {
        const made = document.createElement(name);
        for (const [key, value] of Object.entries(attributes))
            if (key === "class") made.className = value;
            else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
            else if (value !== null && value !== undefined) made.setAttribute(key, value);
        made.append(...children);
        return made;
    },

    /** Eight colours that colour-blind eyes tell apart (Okabe and Ito), light enough for dark ink on them. */
    colours: ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#7f7f7f"],
};
