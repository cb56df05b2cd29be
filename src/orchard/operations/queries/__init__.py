"""Operations that only look, by what they are about; they are answered from the journal, with and without an engine."""
