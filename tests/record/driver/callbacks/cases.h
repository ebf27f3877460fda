/* The cases, each in the file of its concern. */
#ifndef CM_TESTS_CALLBACKS_CASES_H
#define CM_TESTS_CALLBACKS_CASES_H

/* memory.c */
void memory(void);
void places(void);
void streams(void);
void virtual_memory(void);
void descriptions(void);
/* nesting.c */
void nested(void);
void halves(void);
void untold(void);
/* contexts.c */
void contexts(void);
/* enabling.c */
void launches(void);
void releases(void);
/* libraries.c */
void libraries(void);
void threads(void);
/* moves.c */
void moves(void);
/* timing.c */
void timing(void);

/* libraries.c: from the folder that the command line names */
extern const char *folder;
void *load(const char *name);
/* Has the library call. */
void called_from(void *handle, void (*call)(void *));
/* Physical memory is made. */
void one_create(void *unused);

#endif
