/* The page of `cuptimem timeline`: its data is embedded. */
"use strict";

cuptimem.data().then((data) => {
    const roots = document.querySelectorAll(".timeline");
    if (data.beside) return cuptimemTimelines(roots, data.beside);
    return cuptimemTimeline(roots[0], data, { keys: "page" });
});
