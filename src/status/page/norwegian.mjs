/** The page in Norwegian (bokmål): by the English sentence. */
export const NORWEGIAN = {};
