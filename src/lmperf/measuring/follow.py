def die_with(parent):
    pass
