from prime_rl.parts import trainer

trainer("rl")
