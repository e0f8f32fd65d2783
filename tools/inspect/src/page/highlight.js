// A small tokeniser: enough to tell names from numbers in four languages.

const rustWords = "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while".split(" ");

const grammars = {
  rust: [
    ["comment", /\/\/.*/y],
    ["string", /b?"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)'/y],
    ["attribute", /#!?\[[^\]]*\]?/y],
    ["label", /'[a-z_]+/y],
    ["number", /\b(?:0[xb][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:e[+-]?\d+)?)(?:[iuf]\d+|usize)?/y],
    ["keyword", new RegExp(`\\b(?:${rustWords.join("|")})\\b`, "y")],
    ["macro", /\b[a-z_]\w*!/y],
    ["type", /\b(?:[A-Z]\w*|[iu](?:8|16|32|64|128|size)|f(?:16|32|64)|bool|str)\b/y],
    ["call", /\b[a-z_]\w*(?=(?:::<[^(]*>)?\()/y],
    ["", /\w+|\s+/y],
  ],
  ir: [
    ["string", /"(?:[^"\\]|\\.)*"/y],
    ["type", /\b(?:[iu](?:8|16|32|64)|b?f(?:16|32|64)(?:x2)?|global|shared|pred)\b/y],
    ["register", /\bv\d+/y],
    ["label", /\b(?:block|shared)\d+/y],
    ["keyword", /\b(?:kernel|threads|param|jump|branch|return)\b/y],
    ["number", /-?\b(?:0x[\da-f]+|\d[\d.]*(?:e-?\d+)?)/y],
    ["call", /\b[a-z_]\w*(?=[. ]|$)/y],
    ["", /[@\w]+|\s+/y],
  ],
  ptx: [
    ["comment", /\/\/.*/y],
    ["string", /"[^"]*"/y],
    ["directive", /(?<![\w])\.[a-z_]\w*/y],
    ["label", /\$L\w+/y],
    ["register", /%\w+(?:\.[xyz])?/y],
    ["number", /-?\b(?:0[fdxFDX][\da-fA-F]+|\d+)\b/y],
    ["call", /(?<=^\s*|^\s*@!?%p\d+\s)[a-z][\w.:]*/y],
    ["", /\w+|\s+/y],
  ],
  sass: [
    ["address", /^[\da-f]{4,}(?=\s)/y],
    ["label", /\.L_\w+|`\(\.L_\w+\)/y],
    ["register", /\b(?:UR\d+|URZ|RZ|R\d+|U?P\d+|U?PT|B\d+|SB\d+)\b/y],
    ["call", /\b[A-Z][A-Z\d]*(?:\.[A-Z\d_.]+)*\b/y],
    ["number", /-?\b(?:0x[\da-f]+|\d[\d.]*)\b/y],
    ["", /\w+|\s+/y],
  ],
};

/** Tokens as pairs of a class and a text. */
function tokens(language, text) {
  const list = [];
  let at = 0;
  while (at < text.length) {
    let [kind, length] = ["", 1];
    for (const [name, pattern] of grammars[language]) {
      pattern.lastIndex = at;
      const match = pattern.exec(text);
      if (match && match[0].length > 0) {
        [kind, length] = [name, match[0].length];
        break;
      }
    }
    const last = list[list.length - 1];
    const piece = text.slice(at, at + length);
    if (last && last[0] === kind) last[1] += piece;
    else list.push([kind, piece]);
    at += length;
  }
  return list;
}

/** The line's elements, with search hits marked. */
function highlighted(language, text, query) {
  const hits = [];
  if (query) {
    const lower = text.toLowerCase();
    for (let at = lower.indexOf(query); at >= 0; at = lower.indexOf(query, at + query.length)) hits.push(at);
  }
  const out = [];
  let at = 0;
  for (const [kind, piece] of tokens(language, text)) {
    // A token is cut where a hit begins or ends.
    const cuts = [0, piece.length];
    for (const hit of hits) for (const edge of [hit - at, hit + query.length - at]) if (edge > 0 && edge < piece.length) cuts.push(edge);
    cuts.sort((a, b) => a - b);
    for (let index = 1; index < cuts.length; index++) {
      const part = piece.slice(cuts[index - 1], cuts[index]);
      if (!part) continue;
      const start = at + cuts[index - 1];
      const hit = hits.some((from) => start >= from && start < from + query.length);
      const plain = kind ? h("span", { class: `t-${kind}` }, part) : part;
      out.push(hit ? h("mark", { class: "hit" }, plain) : plain);
    }
    at += piece.length;
  }
  return out;
}
