"""Operations on tensors: each with a plain-torch reference that defines it."""
