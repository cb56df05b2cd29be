"""Operations that change something, by what they are about; see `operations.command` for how one is decided."""
