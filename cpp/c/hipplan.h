/* hipplan.h: C and C++ programs use the memory of a plan that a holder keeps.

     hipplan up weights.yaml --name weights
     hipplan attach weights -- ./program

     hipplan_layout* layout = NULL;
     hipplan_error error;
     const hipplan_object* embed = NULL;
     if (hipplan_attach(NULL, NULL, &layout, &error) ||
         hipplan_find(layout, "model.embed", &embed, &error)) {
       fprintf(stderr, "%s\n", error.text);
       exit(1);
     }
     launch(embed->address, embed->bytes);
     hipplan_detach(layout, NULL);

   The library needs no Python and links no HIP library. It uses the one that the process has loaded, or opens
   one.

   Every function may be called from any thread, with one rule: no other call may use a layout while, or
   after, it is detached. The library starts no thread, prints nothing, and ends no process. A forked child
   must not use the memory of its parent: calls with the parent's layout return HIPPLAN_WRONG_USE there, and
   hipplan_detach() frees it without a driver call. A program that ends without hipplan_detach() leaves the
   rest to the driver, as with any memory. */
#ifndef HIPPLAN_H
#define HIPPLAN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HIPPLAN_API __attribute__((visibility("default")))
#else
#define HIPPLAN_API
#endif

/* Codes that programs may want to tell apart. Others are the numbers of hipplan's diagnostics too: 452 is
   HP452, which `hipplan explain HP452` explains. They never change. */
enum {
  HIPPLAN_OK = 0,
  HIPPLAN_DRIVER_FAILED = 401, /* a driver call failed, and all was rolled back */
  HIPPLAN_DIFFERS = 402,       /* the driver reports something else than what was asked for; rolled back */
  HIPPLAN_NOT_RELEASED = 403,  /* an object could not be released */
  HIPPLAN_ADDRESS_TAKEN = 404, /* an address cannot be had in this process; rolled back */
  HIPPLAN_NO_RUNTIME = 407,    /* no HIP library can be used */
  HIPPLAN_ASLEEP = 441,        /* the holder's memory is asleep */
  HIPPLAN_NO_HOLDER = 452,     /* there is no such holder */
  HIPPLAN_NOT_ALLOWED = 454,   /* the holder does not allow this, or this process does not see its devices */
  HIPPLAN_NO_ANSWER = 455,     /* the holder does not answer, or has ended */
  HIPPLAN_WRONG_USE = 458,     /* an argument or a name is wrong, or this is a forked child */
  HIPPLAN_NO_MEMORY = 459      /* this process has no host memory left */
};

/* The size of hipplan_error.text, with its final zero. */
#define HIPPLAN_TEXT_SIZE 4000

/* What went wrong, in lines: what, why, what to do, the driver's call. A longer text is cut. */
typedef struct hipplan_error {
  int code;
  char text[HIPPLAN_TEXT_SIZE];
} hipplan_error;

/* How to attach. Set it with HIPPLAN_OPTIONS, then change single fields:

     hipplan_options options = HIPPLAN_OPTIONS;
     options.access = "r"; */
typedef struct hipplan_options {
  /* sizeof(hipplan_options): later versions of hipplan add fields at the end. */
  size_t size;
  /* NULL: the plan's right for each object. "r" or, if the holder allows it, "rw": for all objects. */
  const char* access;
  /* NULL or "same". "any": the driver chooses, where the addresses of the plan are taken in this process. */
  const char* addresses;
  /* The path of the HIP library. NULL: HIPPLAN_RUNTIME (amd, cuda, sim or a path), else the library that the
     process has loaded, else one of the kind that made the memory. */
  const char* library;
  /* How many seconds to wait while the holder fills or wakes. 0: 60. */
  double timeout_s;
} hipplan_options;

#define HIPPLAN_OPTIONS {sizeof(hipplan_options), NULL, NULL, NULL, 0}

/* Values of hipplan_object.device that are not HIP's ordinals. */
enum {
  HIPPLAN_HOST = -1,     /* host memory */
  HIPPLAN_NO_DEVICE = -2 /* a reservation, which may hold memory of several; a tensor on several devices */
};

/* An object that has an address. It is the library's, and valid until its layout is detached. */
typedef struct hipplan_object {
  const char* name; /* in the plan, such as "model.embed" */
  const char* kind; /* "region", "tensor", "reservation" or "mapping" */
  void* address;
  uint64_t bytes;        /* with padding */
  const char* dtype;     /* of a tensor, such as "bf16"; "u8" for everything else */
  size_t rank;           /* how many dimensions it has */
  const uint64_t* shape; /* elements in each dimension, in C order; {bytes} for what is no tensor */
  int device;            /* HIP's ordinal in this process */
  const char* uuid;      /* of the device, such as "GPU-6f2b..."; empty without one */
  int writable;          /* 1: its device may write all of it; 0: it may only read, or has no access */
} hipplan_object;

/* The memory of a holder in this process. */
typedef struct hipplan_layout hipplan_layout;

/* Every function that returns an int returns HIPPLAN_OK or a code; then `error`, if it is not NULL, has the
   code and the text. */

/* Map the memory of a holder, all of it or none: the same names, addresses and bytes as in every other
   process. What the driver did is read back before it returns. name: of `hipplan up --name`, or the path of
   its socket; NULL: the environment variable HIPPLAN_HOLDER, which `hipplan attach` sets. options: NULL for
   the defaults. *layout is NULL after an error. */
HIPPLAN_API int hipplan_attach(const char* name, const hipplan_options* options, hipplan_layout** layout,
                               hipplan_error* error);

/* Find an object by its name. *object is NULL after an error. */
HIPPLAN_API int hipplan_find(const hipplan_layout* layout, const char* name, const hipplan_object** object,
                             hipplan_error* error);

/* How many objects there are; 0 for NULL. */
HIPPLAN_API size_t hipplan_count(const hipplan_layout* layout);

/* One of them, in the order of the plan; NULL if there are not so many. */
HIPPLAN_API const hipplan_object* hipplan_at(const hipplan_layout* layout, size_t number);

/* NULL while the holder keeps the same memory. Else why it does not: "replaced" by that of another plan,
   "closed" by `hipplan down`, or "ended" without it. The memory stays mapped in this process, with its bytes,
   until hipplan_detach(). It does not wait. */
HIPPLAN_API const char* hipplan_lost(hipplan_layout* layout);

/* Wait for the devices, unmap everything, and tell the holder. The layout is freed in any case, and its
   objects with it. Returns HIPPLAN_NOT_RELEASED if something could not be released. NULL is no error. */
HIPPLAN_API int hipplan_detach(hipplan_layout* layout, hipplan_error* error);

/* The version of the library, such as "0.1.0". */
HIPPLAN_API const char* hipplan_version(void);

#ifdef __cplusplus
}
#endif

#endif
