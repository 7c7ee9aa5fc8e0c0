"""What the model may do beyond talking: tools, who allows them, and what keeps them inside their bounds."""
