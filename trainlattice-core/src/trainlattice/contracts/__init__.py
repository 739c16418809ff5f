"""What each kind of component must be: options, contract records, kinds. Torch-free."""
