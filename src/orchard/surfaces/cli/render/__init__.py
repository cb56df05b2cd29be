"""Documents as lines of text for people: values go in, styled lines come out."""
