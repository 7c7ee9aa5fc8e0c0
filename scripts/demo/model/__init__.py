"""The trainable `qwen4_exp` text model; parameter names equal transformers' `Qwen4ExpForCausalLM`."""
