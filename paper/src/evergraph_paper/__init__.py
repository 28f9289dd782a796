"""The paper's experiments on Evergraph: plan, trials, tables, figures and claims."""
