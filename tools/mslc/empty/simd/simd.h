// Empty: the translator puts msl_core.h before the text itself.
