/* store_others.c: the state directory has one directory for each model: whose sessions are the others? */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "states/durable.h"
#include "states/store_files.h"

enum { DIRECTORY_CHARS = 16, MODEL_BYTES = 128 };

static const char MODEL_FILE[] = "model.txt";

/* For people and for other daemons: nothing depends on it. */
static FILE *open_name(const char *directory, const char *mode)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", directory, MODEL_FILE) < 0) {
        return NULL;
    }
    FILE *file = fopen(path, mode);
    free(path);
    return file;
}

static void write_name(const store_files *f, const char *model)
{
    FILE *file = open_name(f->directory, "we");
    if (file != NULL) {
        fprintf(file, "%s\n", model);
        fclose(file);
    }
}

static void read_name(const char *directory, char out[MODEL_BYTES])
{
    snprintf(out, MODEL_BYTES, "a model whose name is not known");
    FILE *file = open_name(directory, "re");
    if (file == NULL) {
        return;
    }
    if (fgets(out, MODEL_BYTES, file) != NULL) {
        out[strcspn(out, "\n")] = '\0';
        for (char *at = out; *at != '\0'; at++) { /* it goes to a log */
            *at = (unsigned char)*at < ' ' ? '?' : *at;
        }
    }
    fclose(file);
}

static uint32_t count_sessions(const char *directory)
{
    uint32_t n = 0;
    DIR *d = opendir(directory);
    const struct dirent *entry;
    while (d != NULL && (entry = readdir(d)) != NULL) {
        uint64_t id;
        n += durable_parse(entry->d_name, SNAPSHOT_SESSION, &id);
    }
    if (d != NULL) {
        closedir(d);
    }
    return n;
}

static void tell_of(store_files *f, const char *directory)
{
    char model[MODEL_BYTES];
    const uint32_t n = count_sessions(directory);
    if (n > 0) {
        read_name(directory, model);
        store_files_complain(f, "%u session%s of %s lie%s in %s: kept until that model is served again", n,
                             n == 1 ? "" : "s", model, n == 1 ? "s" : "", directory);
    }
}

static bool is_directory_of_a_model(const char *name)
{
    return strlen(name) == DIRECTORY_CHARS && strspn(name, "0123456789abcdef") == DIRECTORY_CHARS;
}

void store_others_tell(store_files *f, const char *model)
{
    write_name(f, model);
    const char *own = strrchr(f->directory, '/');
    if (own == NULL || !is_directory_of_a_model(own + 1)) {
        return;
    }
    char *parent = strndup(f->directory, (size_t)(own - f->directory));
    DIR *d = parent != NULL ? opendir(parent) : NULL;
    const struct dirent *entry;
    while (d != NULL && (entry = readdir(d)) != NULL) {
        char *directory = NULL;
        if (is_directory_of_a_model(entry->d_name) && strcmp(entry->d_name, own + 1) != 0 &&
            asprintf(&directory, "%s/%s", parent, entry->d_name) >= 0) {
            tell_of(f, directory);
            free(directory);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    free(parent);
}
