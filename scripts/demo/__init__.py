"""Everything behind scripts/train_demo.py: data generators, the trainable model, training, NVFP4 export, evaluation."""
