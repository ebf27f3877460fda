/* The page of `cuptimem timeline`: its data is embedded. */
"use strict";

cuptimem.data().then((data) => cuptimemTimeline(document.getElementById("timeline"), data, { keys: "page" }));
