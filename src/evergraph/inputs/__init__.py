"""Inputs of models and detectors: vocabulary, slice context, nearest neighbours."""
