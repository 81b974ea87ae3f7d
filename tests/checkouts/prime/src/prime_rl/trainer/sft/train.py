from prime_rl.parts import trainer

trainer("sft")
