// Where sentences, clauses and phrases end: the places at which a caption or a line may break.

const CLOSING = /["'”’»)」』）]+$/u;
const LEANING = new Set(("a an the my your his her its our their this these those of to in on at by for from with into "
  + "and or but nor that who which as than if when because i he she we they is are was were be been has have had will "
  + "would can could not very mr. mrs. ms. dr.").split(" "));

export const endsSentence = (text) => /[.!?…。！？؟।։።။]$/u.test(text.replace(CLOSING, ""));
export const endsClause = (text) => endsSentence(text) || /[,;:—–、，；：،؛]$/u.test(text.replace(CLOSING, ""));
/** English words that should stay on one line with the next. */
export const leansOnNext = (text) => LEANING.has(text.toLowerCase());
