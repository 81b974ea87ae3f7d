"""Words for people: rendering, redaction, durations, glyphs. No judgement."""
