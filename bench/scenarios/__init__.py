"""The scenarios, one module each: ``run`` measures, ``space`` says how many bytes of disk that takes."""
